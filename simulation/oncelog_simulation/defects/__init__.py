"""Seeded defects: lines of the real code that are removed or changed, to show that the simulation finds such bugs.

`defect`        what a defect is, and how it is applied when its module is imported
`replication`   high watermark, in-sync replicas, followers
`logs`          sequences, snapshots, leader epochs, last stable offset, fsync, compaction
`transactions`  the transaction coordinator, its markers, verification
`groups`        committed offsets, members, the runtime of coordinators
`control`       elections, reassignments, registration, producer ids
`clients`       our own producer and consumer
`catalogue`     all defects by name
`hunt`          looks for the first seed that finds a defect, in separate processes
`report`        the table for docs/simulation.md
"""
