"""Record batches in Kafka's message format v2.

`batch` reads and patches the 61-byte header in place. `record` and `columns` decode records, and `record_scan` reads
single fields. `builder` writes batches, `packing` encodes many plain records in one call, and `rewrite` writes a batch
with fewer records. `control` has the COMMIT and ABORT markers, `compression` the four codecs, `sequence` the wrap of
sequence numbers at 2^31, and `varint` the variable-length integers.
"""
