"""Consumer groups: who is in a group, who reads what, how far each group has read.

`config` its settings, `states` the table of legal transitions, `step` the context of one operation, `classic_group` one
group of the classic protocol with its members, `joining` and `membership` what requests and timers do to it, `offsets`
committed offsets, `transactional_offsets` those that wait for the end of a transaction, `subscription` what members say
they read, `records` what is logged, `machine` all groups of one partition, `coordinator` the rim. All but `coordinator`
is pure: requests, records and timers come in, `Effects` go out.
"""
