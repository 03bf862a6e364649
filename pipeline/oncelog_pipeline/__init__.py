"""The data pipeline: reads topics into Spark and writes topics from Spark exactly once, in pure PySpark.

- `opening.py` starts clients, and waits for an unreachable broker.
- `security/` loads truststores, keystores and tokens.
- `options/` checks the options of users.
- `source/` reads topics.
- `sink/` writes to topics exactly once.
- `arrow/` encodes rows in Arrow's form as record batches.
- `values/` converts bytes to columns and back: JSON and Avro.
- `spark/` has the classes that Spark calls.
- `metrics/` serves metrics of streaming queries, for Prometheus and the console.
- `jobs/` implements `oncelog pipeline`: jobs from files, the audit of a topic, archives.
"""
