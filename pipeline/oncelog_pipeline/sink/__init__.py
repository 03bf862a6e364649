"""Writing to topics exactly once, by many tasks and one driver that may all die at any moment.

names.py         the names of a query and of what its tasks write in
state.py         what is decided, what a task tells the driver; as JSON
operations.py    what the steps ask of the cluster, and what may go wrong
exactly_once.py  (no I/O of its own) the steps: a task writes, the driver decides, a later run takes over
digest.py        (pure) what a task's rows were, for comparison with a replay
orphans.py       (no I/O of its own) decisions whose driver died are ended
unnamed.py       (no I/O of its own) a batch write without a writeId finds the one that it repeats
per_task.py      (likewise) the fallback: each task writes once, by itself
state_topic.py   where the state of all queries is kept
cluster.py       the operations, over the client
"""
