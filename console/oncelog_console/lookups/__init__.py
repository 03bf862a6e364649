"""Reads the state of a cluster with the admin client. No HTML.

missing.py       unavailable values, and why
brokers.py       brokers, their led and hosted partitions, their data directories
topics.py        topics, and one topic: partitions, settings, sizes
batch_outcomes.py (pure) the outcome of each batch: committed, aborted, open, held back
log_reading.py   a range of a partition, with the outcome of each batch
record_view.py   one record
wanted.py        which records are shown: by key, header, time, value
decoding.py      what keys and values of records say, and which match an expression
records.py       a page of records: from a position, those that are wanted
tailing.py       new records as they arrive
producers.py     a partition: its ends, producers, and blocking transaction
transactions.py  open transactions, and the groups that they hold back
lag_history.py   sampled lag of groups
query_history.py sampled metrics of Spark's streaming queries
connect.py       Kafka Connect: connectors, tasks, restarts
groups.py        a group: members, positions, and the plan of a reset
"""
