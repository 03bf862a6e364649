"""Archives topics as partitioned Parquet, and restores topics from it: `oncelog pipeline archive` and `restore`.

- `manifest.py` (pure) describes each topic in an archive.
- `topics.py` describes topics, and creates them again.
- `writing.py` (Spark) writes topics to Parquet.
- `reading.py` (Spark) writes Parquet to topics.
- `command.py` has the commands.
"""
