"""Consumer groups: their members, the assignments of partitions, and the committed offsets.

`config` its settings. The classic protocol: `states` is the table of legal transitions, `step` the context of one
operation, `classic_group` one group with its members, `joining` and `membership` handle requests and timers,
`subscription` parses the subscriptions of members. The consumer protocol (KIP-848): `consumer` has its groups,
`assigning` the assignors that the broker runs, `assignments` target and current assignments, `topic_view` the topics as
groups see them, `consumer_records` the logged records. Both protocols: `offsets` has committed offsets, `commits` the
checks of a commit, `transactional_offsets` the offsets of open transactions, `held_bytes` the bounds on members'
metadata, `records` the logged records, `machine` all groups of one partition, `coordinator` the connection to the rest
of the broker. All modules but `coordinator` are pure: requests, records and timers come in, `Effects` go out.
"""
