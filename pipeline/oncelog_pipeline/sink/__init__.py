"""Writes to topics exactly once, from many tasks and one driver; any of these processes may die at any moment.

names.py         the names of a query, its groups and transactional ids
state.py         the decision, and a task's message to the driver, as JSON
operations.py    the steps' interface to the cluster, and its errors
exactly_once.py  (no I/O of its own) the steps: a task writes, the driver decides, a later run takes over
digest.py        (pure) the digest of a task's rows, to compare with a replay
orphans.py       (no I/O of its own) finishes decisions whose driver died
unnamed.py       (no I/O of its own) finds the write that a batch write without a writeId repeats
per_task.py      (no I/O of its own) the fallback: each task commits by itself
state_topic.py   keeps the state of all queries
cluster.py       implements the operations with the client
"""
