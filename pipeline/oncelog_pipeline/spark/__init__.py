"""The data source that Spark calls: `format("oncelog")`. Only this package imports PySpark's data source API.

- `data_source.py` has the source and the sink that Spark finds by name.
- `stream_reader.py` reads a stream: decides where a batch ends, and what its tasks read.
- `older_reader.py` reads a stream with PySpark 4.0 and 4.1, which do not say where a batch begins.
- `batch_reader.py` reads a batch query.
- `offset_lookup.py` finds partitions, and converts bounds in the options (such as "latest" or a timestamp) to offsets.
- `plan_group.py` commits the plans of a stream to the cluster.
- `range_reader.py` reads the range of one task.
- `source_columns.py` converts records to Arrow batches.
- `record_arrays.py` decodes the records of many batches into arrays with numpy.
- `writers.py` writes streams and batches: tasks, commit, abort.
- `identity.py` determines to which batch, task and attempt a call belongs.
- `row_sender.py` sends the rows of a task to their topics and partitions.
- `sink_columns.py` checks the columns of a table to write.
- `pyspark_api.py` has the classes that some versions of PySpark lack.
- `connections.py` keeps the connections of a worker process open between calls.
- `allocator.py` lets a worker process keep the memory of fetch responses for the next responses.
- `quick_start.py` avoids a TCP delay of 40 ms before the rows of a task arrive.
- `garbage.py` shortens Spark's garbage collection after each task.
- `template_process.py` is the process that has imported everything, and forks Spark's Python processes.
- `warm_up.py` does work in the template process that each forked process would otherwise repeat.
- `environment.py` sets the Python of the workers and a Java before a session is created.
- `java.py` finds the Java on which Spark runs.
"""
