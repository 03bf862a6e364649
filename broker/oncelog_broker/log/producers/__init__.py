"""The producers of a log: duplicate detection, sequence checks, open and aborted transactions.

`state` judges each batch (in order, a duplicate, a gap, fenced) and follows open transactions; `entry` is the state of
one producer, `ended_transaction` the facts of a transaction that a marker has ended. `snapshot` keeps the state in
Kafka's file over restarts; `transaction_index` holds the aborted transactions of a segment; `recent_ends` tells which
producers have been silent. `producers` combines them for one log, with their files.
"""
