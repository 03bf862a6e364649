"""The files of one log: segments, their indexes, and how they are opened, read, rolled and deleted.

`batch_scan` walks the batches of a file. `index` is the common base of `offset_index` and `time_index`; `segment` is
one log file with its indexes. `segment_reader` reads batches by offset for a Fetch; `timestamp_lookup` finds offsets by
timestamp for ListOffsets. `local_log` has all segments of a log. `roll` and `retention` contain decisions without I/O.
`recovery` opens the files after a crash, and `lost_segments` detects that synced records are missing.
"""
