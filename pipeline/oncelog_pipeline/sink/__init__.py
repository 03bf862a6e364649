"""Writes to topics exactly once, from many tasks and one driver; any of these processes may die at any moment.

- `names.py` has the names of a query, its groups and transactional ids.
- `state.py` has the decision (the record that says which transactions of a batch are to be committed), and a task's
message to the driver, as JSON.
- `operations.py` is the interface between the steps and the cluster, and has its errors.
- `exactly_once.py` (no I/O) has the steps: a task writes its rows, the driver decides to commit the batch, a later run
takes over.
- `digest.py` (pure) computes the digest of a task's rows, which is compared with that of a replay.
- `orphans.py` (no I/O) commits decided transactions whose driver died.
- `unnamed.py` (no I/O) finds the earlier write that a batch write without a writeId repeats.
- `per_task.py` (no I/O) is the alternative delivery, in which each task commits its own rows.
- `last_records.py` reads the last record of each key of a topic, and keeps the records between two reads.
- `state_topic.py` stores the state of all queries.
- `cluster.py` implements the operations with oncelog's client.
"""
