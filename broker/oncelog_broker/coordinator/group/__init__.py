"""Consumer groups: their members, the assignments of partitions, and the committed offsets.

`config` its settings. The classic protocol: `states` is the table of legal transitions, `step` the context of one
operation, `classic_group` one group with its members, `joining` and `membership` handle requests and timers,
`subscription` parses the subscriptions of members. The consumer protocol (KIP-848): `consumer` has its groups,
`assigning` the assignors that the broker runs, `assignments` target and current assignments, `topic_view` the topics
as groups see them, `consumer_records` the logged records. Share groups (KIP-932): `share`, `share_records`. Streams
groups (KIP-1071): `streams`, `streams_tasks`, `streams_records`. `record_kinds` has the tables of records of the
newer protocols, `other_groups` what a machine asks of the groups of the last two. All protocols: `offsets` has
committed offsets, `commits` the checks of a commit, `transactional_offsets` the offsets of open transactions,
`offset_removal` the rules by which offsets are deleted, `held_bytes` the bounds on members' metadata, `records` the
logged records, `machine` all groups of one partition, `coordinator` the connection to the rest of the broker,
`share_group_states` its part for share groups. All modules but these two are pure: requests, records and timers come
in, `Effects` go out.
"""
