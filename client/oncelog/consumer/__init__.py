"""The consumer.

records.py    (pure) ConsumerRecord, and a batch as a list of them
isolation.py  (pure) which batches of a Fetch answer belong to aborted transactions
fetched.py    (pure) what one Fetch answer brought for one partition, decoded as it is asked for
positions.py  (pure) the assigned partitions: where each one is, what it has buffered, whether it wants more
offset_reset.py  where partitions without a position begin
fetch_session.py  (pure) what a Fetch request need not repeat (KIP-227)
validation.py (pure) whether a position still lies in the log of its leader (KIP-320)
validator.py  asking leaders that, and what follows from it
fetcher.py    Fetch requests to the leaders, answers into the positions
consumer.py   the public face
group/        the consumer as a member of a group
"""
