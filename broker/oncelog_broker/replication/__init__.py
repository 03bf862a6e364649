"""Replicas of partitions: leader and follower roles, high watermark, in-sync replicas (ISR), and the purgatory of each
leader.

Modules without I/O are `roles` (this broker's role in a partition), `high_watermark` (how far the high watermark may
advance), `isr` (which replicas are in sync, ISR shrink and expand), `follower_progress` (how far a follower has
fetched). Further modules without I/O are `truncation` (where a follower truncates its log), `fetch_plan` (the next
request of a fetcher), `throttle` (the replication quota of catching-up replicas).

Modules for one partition are `replica` (either role), `partition` (the leader's part), `fetch_response` (how a follower
applies the leader's response), `purgatory` (appends and fetches that wait at the partition), `verification_guards`
(detects a marker between the verification of a transaction and its append).

Modules for all partitions of this broker: `replicas` updates them with each cluster image, `image_changes` applies
large changes in slices, and `log_opener` opens and closes their logs. `directory_moves` moves logs to other data
directories. `offline_log_recovery` reopens logs after a disk failure. Before a follower discards records,
`leader_check` asks the leader to confirm that it still leads. `lost_epochs` lists partitions whose log has a newer
leader epoch than the metadata, and `epoch_raiser` asks the controller for a higher epoch. `group_commit` syncs records
before they are acknowledged, `fetcher` runs the follower's fetch loops, `isr_keeper` sends ISR changes to the
controller (AlterPartition), and `peers` sends requests to other brokers. At startup, `startup_logs` lists the logs that
a new cluster finds in its data directories. `older_store` adds missing topics and partitions to a metadata store that
is older than the logs. `stray_logs` renames the directories of logs that belong to no topic.
"""
