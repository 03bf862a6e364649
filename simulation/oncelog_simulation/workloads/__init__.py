"""The clients of a simulated cluster, and their notes.

- `notes` has the notes of all clients: the history, the judged topics, their steps, their complaints.
- `workload` is the base class: a workload is restarted when it is killed, and ends after the faults are over.
- `writers` has idempotent producers.
- `transactions` has transactional producers: several partitions, offsets, aborts, abandoned transactions.
- `pipelines` has consume-process-produce clients, which are killed and replaced.
- `groups` has members of a consumer group, and a watcher of committed offsets.
- `sharers` has members of a share group.
- `ghosts` has members that continue after they have lost their membership in the group.
- `group_wire` sends requests of group members that no library sends.
- `prepared` has two-phase commits, whose end a ledger decides.
- `retention` has a writer to a topic whose oldest segments are deleted.
- `careless` has a writer to a topic with unclean leader elections.
- `readers` has readers of entire topics, and a watcher of end offsets.
- `tables` has a writer of keys to a compacted topic.
- `wire` sends requests that no library sends.
- `zombies` has fenced producers, and requests that are repeated, late or out of order.
- `administrators` has reassignments, changed settings, re-created topics and deleted records.
- `catalogue` lists all workloads by name.
"""
