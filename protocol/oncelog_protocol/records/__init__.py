"""Record batches, Kafka's message format v2.

`batch` reads and patches the 61-byte header in place, `record` the records inside, `builder` writes batches,
`control` the COMMIT and ABORT markers, `compression` the four codecs, `sequence` the 2^31 wrap.
"""
