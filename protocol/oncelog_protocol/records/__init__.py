"""Record batches, Kafka's message format v2.

`batch` reads and patches the 61-byte header in place; `record` and `columns` decode records, `record_scan` reads fields
without decoding all; `builder` writes batches, `packing` encodes many plain records at once, `rewrite` writes a batch
with fewer records; `control` has the COMMIT and ABORT markers, `compression` the four codecs, `sequence` the wrap of
sequence numbers at 2^31, `varint` the variable-length integers.
"""
