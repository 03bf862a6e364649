"""Topics as partitioned Parquet, and back: `oncelog pipeline archive` and `restore`.

manifest.py  (pure) what an archive says of each topic besides its records
topics.py    topics described, and made again
writing.py   (Spark) topics to Parquet
reading.py   (Spark) Parquet to topics
command.py   the commands
"""
