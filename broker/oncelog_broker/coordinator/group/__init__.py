"""Consumer groups: who is in a group, who reads what, how far each group has read.

`states` the table of legal transitions, `classic_group` one group of the classic protocol with its members, `joining`
and `membership` what requests and timers do to it, `held_bytes` what members may say of themselves, `offsets` committed
offsets, `commits` and `transactional_offsets` how they are committed, `subscription` what members say they read,
`records` what is logged, `step` what a change may know, `config` the settings, `machine` all groups of one partition,
`coordinator` the rim.
All but `coordinator` is pure: requests, records and timers come in, `Effects` go out.
"""
