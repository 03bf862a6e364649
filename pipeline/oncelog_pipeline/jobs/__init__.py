"""Jobs: `oncelog pipeline run`, `audit`, `archive` and `restore`.

- `job.py` (pure) has the classes that describe a job.
- `job_file.py` (pure) reads a job file strictly.
- `keys.py` (pure) has the keys of a job file, and the errors for other keys.
- `ddl.py` (pure) checks whether a schema is Spark's DDL.
- `checkpoint.py` (pure) checks whether a checkpoint belongs to a job.
- `progress.py` (pure) creates the line of a batch.
- `failures.py` (pure) converts an error of a job to an explanation for the user.
- `session.py` opens a Spark session for one command.
- `query.py` starts a job as a query of Spark.
- `watching.py` shows a query's batches while it runs.
- `run.py` runs a job until it ends.
- `audit/` proves that a topic has no gaps and no duplicates.
- `archive/` writes topics to Parquet, and restores them.
- `state_command.py` implements `oncelog pipeline state`, which shows and resets the sink's decisions.
- `running.py` has the shared code of the commands that start Spark.
- `command.py` implements `oncelog pipeline`.
"""
