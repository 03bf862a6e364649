"""Implements `make soak-spark`: one query with windows and a watermark, while drivers, workers and brokers are killed
with -9.

__main__.py   the command
plan.py       who dies, and when: a function of the seed
orders.py     the records that are written, and the windows that must come of them
judge.py      compares the windows in the target topic with the records in the source topic
topics.py     writes and reads topics with librdkafka
query.py      the Spark program: source and sink are `format("oncelog")`
driver.py     the process of that program, its JVM and its Python workers
run.py        a run: three brokers, the writer, the query and the deaths
report.py     the tables of docs/soak-spark.md
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
