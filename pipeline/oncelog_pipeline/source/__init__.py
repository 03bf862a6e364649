"""Reading topics, in batches that can be read again exactly as they were.

offsets.py    (pure) offsets of many partitions as JSON, as Spark's own connector writes them
plans.py      (pure) where the last batches began and ended, as the cluster keeps it
admission.py  (pure) how much goes into the next batch
ranges.py     (pure) a batch cut into what tasks read
data_loss.py  (pure) what can no longer be read
progress.py   (pure) where the next batch ends
ends.py       the ends of all partitions, asked for less often while nothing changes
watch.py      brokers tell when there is more beyond the ends
lag.py        (pure) how far a query is behind, from its progress
reading.py    the records of one range, as columns
"""
