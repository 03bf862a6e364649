r"""A complete Spark pipeline: reads orders, joins them with a table, sums them in windows, and writes the results
exactly once.

docs/guides/orders-pipeline.md is the tutorial.

    orders --> query "revenue":      customers joined, windows with a watermark --> revenue
           \-> query "dead-letters": records that are not orders, and the reason --> orders-dead

- `order.py` defines the order, in JSON and in Avro, the topics and the windows, for all programs.
- `topics.py` creates the topics.
- `send.py` writes orders, late orders and records that are not orders.
- `pipeline.py` is the Spark program.
- `check.py` reads the three topics with read_committed and compares them, with `judge.py`.
- `judge.py` computes without Spark what the pipeline must have written.
"""
