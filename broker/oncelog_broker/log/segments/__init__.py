"""The files of one log: segments, their indexes, and how they are opened, read, rolled and deleted.

`batch_scan` walks the batches of a file; `index` is what `offset_index` and `time_index` share; `segment` joins one log
file with its indexes; `segment_reader` reads batches by offset for a fetch, `timestamp_lookup` finds offsets by
timestamp for ListOffsets; `local_log` is all segments of a log. `roll` and `retention` decide, without I/O. `recovery`
opens the files after a crash, and `lost_segments` notices synced records that are gone.
"""
