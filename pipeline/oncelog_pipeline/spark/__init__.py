"""What Spark calls: `format("oncelog")`. All that knows PySpark is in this room.

data_source.py     the source and sink that Spark finds by its name
stream_reader.py   reading as a stream: where a batch ends, and what its tasks read
batch_reader.py    reading once
offset_lookup.py   which partitions there are, and which offsets stand for what the options say
range_reader.py    a task reads its range
source_columns.py  records as Arrow batches
value_column.py    their values as one column, of records that are alike in one step
writers.py         writing as a stream and as a batch: tasks, commit, abort
identity.py        which batch, task and attempt this is
row_sender.py      the rows of a task, each to its topic and partition
sink_columns.py    what a table may have of columns
worker_heap.py     what Spark's garbage collection after each task need not look at
connections.py     what a worker process keeps from call to call
environment.py     the Python of the workers, and the Java, set before a session is made
java.py            the Java that Spark runs on
"""
