"""Encodes Arrow columns as record batches, without a Python object for each row.

- `buffers.py` reads the buffers of a binary column.
- `varints.py` encodes a column of numbers as varints.
- `murmur2.py` computes the hash of each key, and its partition.
- `headers.py` encodes a column of headers.
- `record_columns.py` converts an Arrow batch to columns of records.
- `row_digest.py` computes the digest of rows that are stored in columns.
- `short_crcs.py` continues the CRC of all rows with short fields.
- `packed_rows.py` has the class for the rows of one partition, which can encode themselves as records.
- `without_pandas.py` creates arrays and scalars without importing pandas.
- `whole_batches.py` divides rows into record batches, and encodes the heads of all records in one pass.
- `splitting.py` splits rows by topic and partition.
"""
