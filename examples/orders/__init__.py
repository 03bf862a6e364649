r"""A whole Spark pipeline: orders in, joined with a table, summed in windows, written exactly once.

docs/guides/orders-pipeline.md is the tutorial.

    orders --> query "revenue":      customers joined, windows with a watermark --> revenue
           \-> query "dead-letters": what is no order, with the reason          --> orders-dead

order.py     what an order is, in JSON and in Avro, and which topics there are: what the programs agree on
topics.py    makes the topics
send.py      writes orders, some of which are none, and late ones
pipeline.py  the Spark program
check.py     reads the three topics, read_committed, and has judge.py compare them
judge.py     what the pipeline must have written, computed without Spark
"""
