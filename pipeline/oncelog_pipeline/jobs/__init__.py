"""Jobs: `oncelog pipeline run`, `audit`, `archive` and `restore`.

job.py         (pure) what a job does
job_file.py    (pure) a job file read strictly
keys.py        (pure) the keys it may have, and what is said of those that it may not
checkpoint.py  (pure) whether a checkpoint is this job's
progress.py    (pure) a batch in one line
failures.py    (pure) what to tell a user of a job that failed
audit/         proving a topic free of gaps and duplicates
"""
