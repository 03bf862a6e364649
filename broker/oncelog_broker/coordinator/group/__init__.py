"""Consumer groups: who is in a group, who reads what, how far each group has read.

`states` the table of legal transitions, `classic_group` one group of the classic protocol with its members, `joining`
and `membership` what requests and timers do to it, `offsets` committed offsets, `subscription` what members say they
read, `records` what is logged, `machine` all groups of one partition, `coordinator` the rim.
All but `coordinator` is pure: requests, records and timers come in, `Effects` go out.
"""
