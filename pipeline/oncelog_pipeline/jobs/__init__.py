"""Jobs: `oncelog pipeline run`, `audit`, `archive` and `restore`.

job.py         (pure) what a job does
job_file.py    (pure) a job file read strictly
keys.py        (pure) the keys it may have, and what is said of those that it may not
ddl.py         (pure) whether a schema is DDL of Spark's
checkpoint.py  (pure) whether a checkpoint is this job's
progress.py    (pure) a batch in one line
failures.py    (pure) what to tell a user of a job that failed
session.py     a session of Spark for one command
query.py       a job as a query of Spark
watching.py    a query watched while it runs
run.py         a job from its file to its end
audit/         proving a topic free of gaps and duplicates
archive/       topics as Parquet, and back
state_command.py  `oncelog pipeline state`: the sink's decisions shown, and reset
running.py     what the commands that start Spark have in common
command.py     `oncelog pipeline`
"""
