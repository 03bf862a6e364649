"""Jobs: `oncelog pipeline run`, `audit`, `archive` and `restore`.

job.py         (pure) what a job does
job_file.py    (pure) reads a job file strictly
keys.py        (pure) the keys it may have, and the errors for others
ddl.py         (pure) checks whether a schema is Spark's DDL
checkpoint.py  (pure) checks whether a checkpoint is this job's
progress.py    (pure) the line of a batch
failures.py    (pure) explains to a user why a job failed
session.py     opens a Spark session for one command
query.py       starts a job as a query of Spark
watching.py    shows a query's batches while it runs
run.py         runs a job to its end
audit/         proving a topic free of gaps and duplicates
archive/       topics as Parquet, and back
state_command.py  `oncelog pipeline state`: shows and resets the sink's decisions
running.py     shared by the commands that start Spark
command.py     `oncelog pipeline`
"""
