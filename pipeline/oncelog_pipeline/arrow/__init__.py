"""Encodes Arrow columns as record batches, without a Python object for each row.

buffers.py         the buffers of a binary column
varints.py         encodes a column of numbers as varints
murmur2.py         the hash of each key, and its partition
headers.py         encodes a column of headers
record_columns.py  an Arrow batch as columns of records
row_digest.py      the digest of the rows of columns
packed_rows.py     rows of one partition that encode themselves
splitting.py       which rows go to which topic and partition
"""
