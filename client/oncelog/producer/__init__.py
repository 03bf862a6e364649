"""The producer.

partitioner.py           (pure) which partition a record goes to
batch.py                 (pure) records of one partition that travel together, and who waits for them
column_waiter.py         (pure) one future for the many records of a column
columns.py               (pure) such records into their batches, many at once
packable_rows.py         (pure) records that encode themselves, into their batches
record_metadata.py       (pure) where a record went
accumulator.py           (pure) batches per partition: order, readiness, what they take of buffer.memory
sender.py                batches to their leaders, answers back to the batches
producer.py              the public face

Idempotence: who the producer is, and the numbers on its batches.

sequences.py             (pure) the sequence numbers of one partition
session.py               (pure) one session: its identity, and what an error says about the numbers
producer_ids.py          where the producer id comes from

Transactions: states and requests, their rim, the block of the application.

transaction_states.py    (pure) the states, and which may follow which
transaction_manager.py   (pure) what may be done now, and what the coordinator has still to be asked
transaction_errors.py    (pure) what every error code means to a transaction
transaction_requests.py  (pure) those requests, and all error codes of their answers
coordinator_calls.py     sending them until they are answered for good
transactions.py          the rim around the manager
transaction.py           `async with producer.transaction()`
"""
