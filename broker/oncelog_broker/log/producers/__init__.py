"""What a log knows of its producers: duplicate detection, sequence checks, open and aborted transactions.

`state` judges each batch (in order, a duplicate, a gap, fenced) and follows open transactions; `ended_transaction` is
what it says of one that a marker has ended; `entry` is what it knows of one producer; `snapshot` keeps it in Kafka's
file over restarts; `transaction_index` has the aborted transactions of a segment; `recent_ends` tells who has been
silent; `producers` is all of that for one log, with its files.
"""
