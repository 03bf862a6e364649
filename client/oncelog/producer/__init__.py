"""The modules of the producer.

  partitioner.py           (pure) the partition of a record
  batch.py                 (pure) a batch of one partition, and the futures of its records
  column_waiter.py         (pure) one future for the records of a column
  columns.py               (pure) adds columns of records to batches
  packable_rows.py         (pure) adds records that encode themselves to batches
  record_metadata.py       (pure) offset and timestamp of a sent record
  serializing.py           (pure) serializes keys and values to bytes
  counts.py                (pure) counters, for `Producer.metrics`
  accumulator.py           (pure) batches per partition: order, readiness, buffer.memory
  sender.py                sends batches to leaders, passes responses to batches
  producer.py              the public class

Idempotence: producer id, epoch and sequence numbers.

  sequences.py             (pure) the sequence numbers of one partition
  session.py               (pure) one producer session: its identity, and the verdict on errors
  producer_ids.py          requests producer ids (InitProducerId)

Transactions.

  transaction_states.py    (pure) the states and their transitions
  transaction_manager.py   (pure) allowed calls, and pending coordinator requests
  transaction_errors.py    (pure) the meaning of each error code
  transaction_requests.py  (pure) the requests, and the error codes of their responses
  coordinator_calls.py     sends the requests until they get a final response
  transactions.py          the I/O around the manager
  transaction.py           `async with producer.transaction()`
"""
