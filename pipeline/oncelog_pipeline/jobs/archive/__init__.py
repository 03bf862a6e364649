"""Topics as partitioned Parquet, and back: `oncelog pipeline archive` and `restore`.

manifest.py  (pure) the description of each topic in an archive
topics.py    describes topics, and creates them again
writing.py   (Spark) topics to Parquet
reading.py   (Spark) Parquet to topics
command.py   the commands
"""
