"""The records of share partitions at the leader of a partition: who has which record, and for how long (KIP-932).

A share partition is a partition as one share group sees it. Pure: `record_runs` is the state of ranges of offsets,
`share_partition` the transitions of one share partition, `acquisition` how records are handed out, `acknowledgement`
what members say of them, `share_sessions` what a member reads from this broker.

The rim: `share_group_settings` resolves the settings of a group, `hosted_share_partition` is one share partition
with its log, and `share_partitions` all share partitions of this broker.

Guarantee: at least once. A record is at one member at a time in a leader epoch, and is delivered until it is
acknowledged, or as often as the group allows.
"""
