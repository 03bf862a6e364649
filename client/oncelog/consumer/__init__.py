"""The modules of the consumer.

records.py    (pure) ConsumerRecord, and a batch as a list of ConsumerRecords
isolation.py  (pure) which batches of a Fetch response belong to aborted transactions
fetched.py    (pure) a Fetch response for one partition, decoded when its records are taken
positions.py  (pure) the assigned partitions: position, buffered data, errors
offset_reset.py  looks up the start of partitions without a position (auto.offset.reset)
fetch_session.py  (pure) incremental fetch sessions (KIP-227)
validation.py (pure) detects log truncation by leader epochs (KIP-320)
validator.py  sends OffsetForLeaderEpoch to validate positions
deserializing.py  (pure) deserializes keys and values of polled records
counts.py     (pure) counters, for `Consumer.metrics`
fetcher.py    sends Fetch requests, adds responses to the positions
view.py       (pure) the read-only properties of the public class
consumer.py   the public class
group/        membership in a consumer group
"""
