"""Reads topics in batches; reading a batch again returns the same records.

- `offsets.py` (pure) converts offsets of many partitions to JSON and back, as Spark's own connector does.
- `plans.py` (pure) has the plans of the last batches, which the cluster keeps.
- `admission.py` (pure) limits the size of the next batch.
- `ranges.py` (pure) cuts a batch into the ranges that tasks read.
- `data_loss.py` (pure) finds records that are lost.
- `progress.py` (pure) decides where the next batch ends.
- `ends.py` caches the ends of all partitions while nothing changes.
- `watch.py` lets the brokers report when records beyond the known ends exist.
- `lag.py` (pure) computes from a query's progress how many offsets the query is behind the ends of its partitions.
- `kept_consumers.py` keeps the consumer of a task for the next task of the same process.
- `reading.py` reads the records of one range.
"""
