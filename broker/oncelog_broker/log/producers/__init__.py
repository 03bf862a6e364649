"""The producers of a log: duplicate detection, sequence checks, open and aborted transactions.

`state` checks each batch (is it in order, a duplicate, after a gap, or fenced?) and tracks open transactions. `entry`
is the state of one producer; `ended_transaction` has the offsets of a transaction that a marker has ended. `snapshot`
stores the state in Kafka's file format for the next startup; `transaction_index` has the aborted transactions of each
segment; `recent_ends` helps to find producers that have written nothing for the expiration time. `producers` combines
these modules for one log, and manages their files.
"""
