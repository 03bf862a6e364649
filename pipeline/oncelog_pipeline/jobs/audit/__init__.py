"""Proves that a topic has no gaps and no duplicates: `oncelog pipeline audit`.

- `chains.py` (pure) joins batches to chains that contain no fault, and finds the faults between chains.
- `verdict.py` (pure) has the verdict, which is shown as tables and sentences.
- `topics.py` finds the partitions to audit.
- `chain_reading.py` reads a range of offsets as chains.
- `by_producer.py` (Spark) audits by the producers' sequence numbers.
- `by_key.py` (Spark) audits by a number in the records of each key.
- `counting.py` (Spark) counts faults, and keeps examples.
- `command.py` implements `oncelog pipeline audit`.
"""
