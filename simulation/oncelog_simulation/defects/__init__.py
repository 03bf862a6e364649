"""Seeded defects: lines of the real code that are removed or changed, to show that the simulation finds such bugs.

- `defect` has a defect's definition, and inserts a defect when its module is imported.
- `replication` has defects of the high watermark, in-sync replicas and followers.
- `logs` has defects of sequences, snapshots, leader epochs, the last stable offset, fsync and compaction.
- `files` has defects of the files that a log keeps beside its batches: checkpoints, snapshots, indexes.
- `transactions` has defects of the transaction coordinator, its markers and the verification of partitions.
- `groups` has defects of committed offsets, group members and the runtime of coordinators.
- `shares` has defects of share groups.
- `streams` has defects of streams groups.
- `control` has defects of elections, reassignments, registration and producer ids.
- `clients` has defects of oncelog's producer and consumer.
- `lanes` has defects of the fast lanes of Produce, Fetch and OffsetCommit.
- `fixed_bugs` puts back bugs that single seeds found in oncelog.
- `scenes` has defects of all parts that need a rare situation.
- `found_later` has defects that no seed found until a scene, a judge or a workload was extended for them.
- `catalogue` lists all defects by name.
- `hunt` searches, in separate processes, for the first seed that finds a defect.
- `report` writes the table for docs/simulation.md.
"""
