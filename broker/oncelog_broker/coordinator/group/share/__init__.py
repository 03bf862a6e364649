"""Share groups (KIP-932): members share the records of a partition. Pure.

`share_member` and `share_group` are the state, which the log alone changes; `state_partitions` says of which share
partitions the group has state in `__share_group_state`. `share_step` is the context of one operation. `heartbeat` is
how members join, stay and go, `share_target` when and how the group is assigned. `share_groups` has all share groups of
a machine, and is all that the machine knows of them; `offsets_administration` has what administrators ask for.
"""
