"""The producer.

partitioner.py  (pure) which partition a record goes to
batch.py        (pure) records of one partition that travel together, and who waits for them
accumulator.py  (pure) batches per partition: their order, when they are ready, what they take of buffer.memory
sender.py       batches to their leaders, answers back to the batches
producer.py     the public face
"""
