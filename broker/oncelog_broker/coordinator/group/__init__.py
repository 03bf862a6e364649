"""Consumer groups: who is in a group, who reads what, how far each group has read.

`config` its settings. Of the classic protocol: `states` the table of legal transitions, `step` the context of one
operation, `classic_group` one group with its members, `joining` and `membership` what requests and timers do to it,
`subscription` what members say they read. Of the consumer protocol (KIP-848): `consumer` its groups, `assigning` the
assignors that the broker runs, `assignments` who is to have and who has which partitions, `topic_view` the topics as
groups see them, `consumer_records` what is logged. Of share groups (KIP-932): `share`, `share_records`; `record_kinds`
the tables of records that the newer protocols have in common.
`offsets` committed offsets, `commits` which may be committed, `transactional_offsets` those that wait for the end of a
transaction, `offset_removal` which of them go, `held_bytes` how much members may say, `records` what is logged,
`machine` all groups of one partition, `coordinator` the rim, `share_group_states` what the rim does for share groups.
All but the rim is pure: requests, records and timers come in, `Effects` go out.
"""
