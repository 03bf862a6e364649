"""The log of one partition, in Kafka's own files: the modules of this package are its interface, the four subpackages
its parts.

The face: `partition_log` appends, `reader` reads, `trimmer` shortens (retention, DeleteRecords, compaction,
truncation), `flusher` syncs; the four share `log_content` (segments, leader epochs, producers) and `log_state`
(offline, log start, recovery point). `validation` checks a batch before it is appended, `record_validation` its records
(`unpacking` decompresses them). `internal_batches` joins several batches into one append, `leader_epochs` remembers
where each leader epoch began, `header_fields` names the fields of a batch header, `pending_flush` is an fsync in three
steps, `new_directory` the directory of a new log until it is synced, `checkpoints` reads and writes Kafka's small text
files, `config` holds the settings that storage needs.

The rooms, from the bottom up: `segments` (files, indexes, roll, retention, recovery), `producers` (duplicate detection,
open and aborted transactions), then above the face `compaction` and `directories` (all the logs of a broker).

All of it is synchronous and belongs to one thread; functions that may run in another thread say so
(`PendingFlush.sync`).
"""
