"""Reads the state of a cluster with the admin client. No HTML.

- `missing` collects the values that are unavailable, and the reasons.
- `brokers` reads the brokers, their led and hosted partitions, and their data directories.
- `topics` reads all topics, or one topic with its partitions, settings and sizes.
- `batch_outcomes` (pure) determines the outcome of each batch: committed, aborted, open or held back.
- `log_reading` reads a range of a partition, with the outcome of each batch.
- `record_view` is one record, as pages show it.
- `wanted` decides which records are shown, by key, header, time or value.
- `decoding` decodes keys and values of records, and selects records whose values match an expression.
- `records` reads a page of records from a position on.
- `tailing` reads new records as they arrive.
- `producers` reads the ends, the producers and the blocking transaction of a partition.
- `transactions` reads the open transactions, and the groups that they hold back.
- `lag_history` samples the lag of groups.
- `query_history` samples metrics of Spark's streaming queries.
- `connect` reads and restarts connectors and tasks of Kafka Connect.
- `groups` reads a group with its members and positions, and plans offset resets.
- `share_groups` reads a share group with its members and its progress.
"""
