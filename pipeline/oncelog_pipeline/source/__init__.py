"""Reads topics in batches; reading a batch again returns the same records.

offsets.py    (pure) offsets of many partitions as JSON, as Spark's own connector writes them
plans.py      (pure) the plans of the last batches, as kept in the cluster
admission.py  (pure) limits the size of the next batch
ranges.py     (pure) cuts a batch into the ranges that tasks read
data_loss.py  (pure) finds records that are lost
progress.py   (pure) decides where the next batch ends
ends.py       caches the ends of all partitions while nothing changes
watch.py      waits at the brokers for records beyond the ends
lag.py        (pure) how far a query is behind, from its progress
reading.py    reads the records of one range
"""
