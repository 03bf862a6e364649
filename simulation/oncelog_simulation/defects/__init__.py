"""Seeded defects: lines of the real code taken away or changed, to show that the simulation finds such bugs.

`defect`        what a defect is, and how it is made at the import of its module
`replication`   high watermark, in-sync replicas, followers
`logs`          sequences, snapshots, leader epochs, last stable offset, fsync, compaction
`transactions`  the transaction coordinator, its markers, verification
`groups`        committed offsets, members, the runtime of coordinators
`control`       elections, reassignments, registration, producer ids
`clients`       our own producer and consumer
`catalogue`     all of them
`hunt`          looks for the first seed that finds a defect, in processes of its own
`report`        the table for docs/simulation.md
"""
