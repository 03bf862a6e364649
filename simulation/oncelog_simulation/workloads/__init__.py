"""The clients of a simulated cluster, and the notes that they keep.

- `notes` has the notes of all clients: the history, the topics to judge, the clients' steps and their complaints.
- `workload` is the base class: a workload is restarted when a fault has killed it, and ends after the faults are over.
- `writers` has idempotent producers.
- `transactions` has transactional producers, which write to several partitions, commit offsets, abort transactions, and
  leave transactions open.
- `pipelines` has consume-process-produce clients, which faults kill and successors replace.
- `groups` has members of a consumer group, and a watcher of committed offsets.
- `kept_groups` commits an offset for a group, so that no coordinator deletes the group while it has no member.
- `sharers` has members of a share group.
- `streams_members` has members of a streams group, and `streams_wire` sends their requests.
- `strangers` has a member that accepts records which other members of the share group have acquired.
- `ghosts` has former members of groups that continue to send requests.
- `newer_ghosts` has members of the consumer protocol that commit with epochs in which they did not have a partition.
- `group_wire` sends requests of group members as no client library would send them.
- `prepared` has two-phase commits; a ledger outside the cluster decides whether each transaction commits.
- `retention` has a writer to a topic whose oldest segments are deleted.
- `sleepers` has clients that are silent for hours or days, and check what has expired meanwhile.
- `sleeping_sharers` has a member of a share group that comes back after hours or days.
- `sleeping_streams` has a member of a streams group that is silent for hours or days.
- `careless` has a writer to a topic with unclean leader elections.
- `readers` has readers of entire topics, and a watcher of end offsets.
- `tables` has a writer of keys to a compacted topic.
- `wire` sends requests of producers as no client library would send them.
- `zombies` has fenced producers, and clients that send requests twice, late or out of order.
- `repeaters` has an idempotent producer that sends copies of its newest batches.
- `late_peers` sends, in the name of brokers, requests that are late by one epoch.
- `administrators` has clients that reassign partitions, change settings, re-create topics and delete records.
- `catalogue` lists all workloads by name.
"""
