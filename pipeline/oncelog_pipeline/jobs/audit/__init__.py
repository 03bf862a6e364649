"""Proving a topic free of gaps and duplicates: `oncelog pipeline audit`.

chains.py         (pure) batches joined to chains in which nothing is wrong, and what is wrong between chains
verdict.py        (pure) what was found, as tables and sentences
topics.py         what there is to audit
chain_reading.py  the batches of a range of offsets as chains
by_producer.py    (Spark) by the numbers that producers give
by_key.py         (Spark) by numbers in the records of each key
counting.py       (Spark) faults counted, with examples
command.py        `oncelog pipeline audit`
"""
