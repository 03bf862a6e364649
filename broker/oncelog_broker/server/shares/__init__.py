"""Handlers of share partitions (KIP-932): the leader of a partition delivers the records, and share coordinators store
the state.

`share_fetch` and `share_acknowledge` serve members of share groups: `acknowledgements` has the code that both share,
`share_reads` reads logs and acquires records. The other handlers serve only requests from brokers:
`initialize_share_group_state`, `read_share_group_state`, `write_share_group_state`, `delete_share_group_state` and
`read_share_group_state_summary`; `state_requests` has the code that they share. `services` declares what these handlers
may use.
"""
