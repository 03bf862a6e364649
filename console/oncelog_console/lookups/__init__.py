"""What is seen of a cluster: an admin client asks, values come back. Nothing here knows HTML.

missing.py       what could not be had, and why
brokers.py       brokers, what they lead and hold, their data directories
topics.py        topics and one of them: partitions, settings, sizes
batch_outcomes.py  (pure) what has become of each batch: committed, aborted, open, held back
log_reading.py   a stretch of a partition, with the fate of each batch
records.py       a page of records: from a position on, by key, committed only
tailing.py       records as they come
producers.py     a partition: its ends, producers, and why it is held back
transactions.py  open transactions, what they hold back and for whom
lag_history.py   groups, sampled: how far behind they were
query_history.py streaming queries of Spark, sampled by the metrics that they serve
groups.py        a group: members, positions, and where a reset would move it
"""
