"""Rows in Arrow's form to record batches, without a Python object for each row.

buffers.py         what lies below a column
varints.py         numbers as variable-length integers, a column at a time
murmur2.py         the hash of each key, and the partition that it means
headers.py         a column of headers as the ends of records
record_columns.py  an Arrow batch as the fields of records
row_digest.py      the digest of rows in columns
packed_rows.py     rows of one partition that encode themselves
splitting.py       which rows go to which topic and partition
"""
