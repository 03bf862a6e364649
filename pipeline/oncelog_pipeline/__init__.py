"""The data pipeline: exactly once into and out of Spark, in pure PySpark.

opening.py  clients that wait for a broker which is away, also at first
security/ truststores, keystores and tokens
options/  what a user sets
source/   reading topics
sink/     writing to topics exactly once
arrow/    rows in Arrow's form to record batches
values/   bytes as columns: JSON and Avro
spark/    what Spark calls
metrics/  metrics of streaming queries, for Prometheus and the console
jobs/     `oncelog pipeline`: jobs from files, the audit of a topic, archives
"""
