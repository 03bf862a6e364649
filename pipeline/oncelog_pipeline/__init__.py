"""The data pipeline: reads topics into Spark and writes topics from Spark exactly once, in pure PySpark.

opening.py  clients that wait for an unreachable broker, also when they start
security/ truststores, keystores and tokens
options/  the options of users
source/   reading topics
sink/     writing to topics exactly once
arrow/    rows in Arrow's form to record batches
values/   bytes as columns: JSON and Avro
spark/    the classes that Spark calls
metrics/  metrics of streaming queries, for Prometheus and the console
jobs/     `oncelog pipeline`: jobs from files, the audit of a topic, archives
"""
