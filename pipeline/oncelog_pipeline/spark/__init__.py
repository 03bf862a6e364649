"""The data source that Spark calls: `format("oncelog")`. Only this room imports PySpark's data source API.

data_source.py     the source and sink that Spark finds by its name
stream_reader.py   reading as a stream: where a batch ends, and what its tasks read
older_reader.py    the same with PySpark 4.0 and 4.1, which say less
batch_reader.py    reading once
offset_lookup.py   finds partitions, and the offsets that the options mean
plan_group.py      the plans of a stream, committed to the cluster
range_reader.py    a task reads its range
source_columns.py  records as Arrow batches
record_arrays.py   the records of many batches as arrays, in steps of numpy
writers.py         writing as a stream and as a batch: tasks, commit, abort
identity.py        finds out the batch, task and attempt of a task
row_sender.py      the rows of a task, each to its topic and partition
sink_columns.py    checks the columns of a table to write
pyspark_api.py     classes that only some versions of PySpark have
connections.py     what a worker process keeps from call to call
quick_start.py     saves a task's rows a delay of 40 ms
freed_memory.py    keeps the memory that a writing task frees, for its next batches
garbage.py         keeps Spark's garbage collection after each task short
template_process.py the process that has imported everything, and forks Spark's Python processes
environment.py     the Python of the workers, and the Java, set before a session is made
java.py            the Java that Spark runs on
"""
