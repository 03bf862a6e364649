"""Share groups (KIP-932): members share the records of a partition. Pure.

`share_member` and `share_group` are the state, which changes only when a logged record is applied to it (`replay`).
`state_partitions` lists the share partitions whose state in `__share_group_state` the group has initialized.
`share_step` is the context of one operation. `heartbeat` handles the heartbeats of members, and `share_target` computes
the target assignment. `share_groups` has all share groups of one state machine, which uses only this module;
`offsets_administration` handles requests of administrators.
"""
