"""The log of one partition, in Kafka's own files: this folder is its face, the four rooms below are its parts.

The face: `partition_log` is the log of a partition as it grows, `trimmed_log` as it gets shorter (delete, truncate),
`flushed_log` as it becomes durable, `readable_log` as it is read, `log_content` what it consists of; `validation` says
what a batch must be before it is appended, and `record_validation` what its records must be (`unpacking` decompresses
them); `internal_batches` joins several batches into one append, `leader_epochs` remembers where each leader epoch
began, `header_fields` names what a batch header holds, `flush` syncs in three steps, `new_directory` is that of
a log made just now until it is synced, `checkpoints` are Kafka's small text files, `config` the settings that storage
needs.

The rooms, from the bottom up: `segments` (files, indexes, roll, retention, recovery), `producers` (duplicate detection,
open and aborted transactions), then above the face `compaction` and `directories` (all the logs of a broker).

All of it is synchronous and belongs to one thread; what may run elsewhere says so (`PendingFlush.sync`).
"""
