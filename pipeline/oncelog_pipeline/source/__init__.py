"""Reading topics, in batches that can be read again exactly as they were.

offsets.py  (pure) offsets of many partitions as JSON, as Spark's own connector writes them
"""
