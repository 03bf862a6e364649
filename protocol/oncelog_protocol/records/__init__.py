"""Record batches, Kafka's message format v2.

`batch` reads and patches the 61-byte header in place; `record` and `columns` decode the records inside, `record_scan`
looks at them without that; `builder` writes batches, `packing` many plain records at once, and `rewrite` what is left
of one; `control` the COMMIT and ABORT markers, `compression` the four codecs, `sequence` the 2^31 wrap, `varint` the
numbers.
"""
