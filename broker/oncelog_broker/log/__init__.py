"""The log of one partition, in Kafka's own files, and all the logs of a broker.

From the bottom up: `batch_scan` walks batches in a file, `segment_index` with `offset_index` and `time_index` finds
positions, `segment` joins one log file with its indexes, `recovery` opens what a crash left, `local_log` is a row of
segments, `partition_log` the log of a partition, `log_manager` owns the data directories. `validation`, `roll` and
`retention` decide, without I/O.

Compaction: `cleaner` and `batch_retention` decide, `compaction` walks the dirty part with an `offset_map` and writes
`cleaned_segment`s in the place of the old ones, in `steps` that whoever runs them may pause.

All of it is synchronous and belongs to one thread; what may run elsewhere says so (`PendingFlush.sync`).
"""
