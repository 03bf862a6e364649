"""The in-flight records of share partitions, at the partition leader: which member has acquired which record, and when
its lock expires (KIP-932).

A share partition is the pair of a partition and a share group that reads the partition. These modules have no I/O:
`record_runs` stores the states of ranges of offsets, and `share_partition` has the transitions of one share partition.
`acquisition` delivers records to members, `acknowledgement` handles the acknowledgements of members, and
`share_sessions` has the partitions that a member reads from this broker. `share_counts` counts deliveries for metrics.

These modules connect the pure modules with the broker: `share_group_settings` resolves the settings of a group,
`hosted_share_partition` is one share partition with its log, and `share_partitions` has all share partitions of this
broker.

The guarantee is delivery at least once. Within a leader epoch never more than one member has a record at the same time.
A record is delivered again until a member accepts or rejects it, or until the group's limit on deliveries is reached.
"""
