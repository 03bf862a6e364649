"""Implements `make soak-spark`: one query with windows and a watermark, while drivers, workers and brokers are killed
with -9.

- `__main__.py` is the command.
- `plan.py` determines from the seed which process dies, and when.
- `orders.py` defines the records that are written, and the windows that must result from them.
- `judge.py` compares the windows in the target topic with the records in the source topic.
- `topics.py` writes and reads topics with librdkafka.
- `query.py` is the Spark program, whose source and sink are `format("oncelog")`.
- `driver.py` runs the process of that program, with its JVM and its Python workers.
- `run.py` runs the soak once: three brokers, a writer of orders, the Spark query, and the kills.
- `report.py` writes the tables of docs/soak-spark.md.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
