"""Share partitions: their records at the leader of a partition, their state at share coordinators (KIP-932).

`share_fetch` and `share_acknowledge` are for members of share groups: `acknowledgements` is what both do,
`share_reads` how logs are read and records acquired. The other handlers are for brokers alone:
`initialize_share_group_state`, `read_share_group_state`, `write_share_group_state`, `delete_share_group_state` and
`read_share_group_state_summary`, with what they have in common in `state_requests`. `services` is what all may reach.
"""
