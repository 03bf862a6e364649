"""The log of one partition, in Kafka's own file formats. The modules of this package are its interface; the four
subpackages contain the implementation.

The interface: `partition_log` appends, `reader` reads, `trimmer` shortens a log (retention, DeleteRecords, compaction,
truncation), and `flusher` syncs. `partition_log`, `reader`, `trimmer` and `flusher` share `log_content` (segments,
leader epochs, producers) and `log_state` (offline flag, log start, recovery point). `validation` checks a batch before
the append, and `record_validation` checks the records of the batch (`unpacking` decompresses them). `internal_batches`
joins several batches into one append, `leader_epochs` remembers where each leader epoch began, and `header_fields`
names the fields of a batch header. `pending_flush` splits an fsync into three steps. `new_directory` represents a new
log's directory that is not synced yet, `closed_log` is the state of a closed log, and `periodic_work` registers the
logs that background tasks must visit. `checkpoints` reads and writes Kafka's small text files, and `config` has the
settings that storage needs.

Below the interface are the subpackages `segments` (files, indexes, roll, retention, recovery) and `producers`
(duplicate detection, open and aborted transactions). The subpackages `compaction` and `directories` (all logs of a
broker) use the interface.

All functions are synchronous and must run in the thread of the event loop. If another thread may run a function, such
as `PendingFlush.sync`, the function's docstring says so.
"""
