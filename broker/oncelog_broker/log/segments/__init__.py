"""The files of one log: segments, their indexes, and how they are opened, read, rolled and let go.

`batch_scan` walks the batches of a file; `index` is what `offset_index` and `time_index` share; `segment` joins one log
file with its indexes; `reader` finds what a fetch gets and `timestamp_lookup` what ListOffsets asks for; `local_log` is
a row of segments as one thing. `roll` and `retention` decide, without I/O. `recovery` opens what a crash left, and
`lost_segments` notices records that were synced and are gone.
"""
