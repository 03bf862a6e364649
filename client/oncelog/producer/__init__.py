"""The producer.

partitioner.py  (pure) which partition a record goes to
batch.py        (pure) records of one partition that travel together, and who waits for them
accumulator.py  (pure) batches per partition: their order, when they are ready, what they take of buffer.memory
sequences.py    (pure) the sequence numbers of one partition
session.py      (pure) producer id and epoch of now, and what an error of a write says about the numbers
sender.py       batches to their leaders, answers back to the batches
producer_ids.py a producer id from any broker, for idempotence alone

transaction_states.py    (pure) which state of a transaction may follow which
transaction_manager.py   (pure) what may be done now, and what has to be asked of the coordinator
transaction_requests.py  (pure) the requests to coordinators, and what their answers mean
coordinator_calls.py     finds coordinators, and repeats a request until it is answered for good
transactions.py          begins, adds, commits, aborts: the rim around transaction_manager
transaction.py           `async with producer.transaction()`

producer.py     the public face
"""
