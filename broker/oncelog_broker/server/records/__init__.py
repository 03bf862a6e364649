"""Handlers that read, write and delete records, and look up offsets.

`produce` appends records, and transactional records by `transactional_append`; `fetch` reads records, with
`fetch_reads`, which treats consumers and followers differently. `list_offsets`, `delete_records`,
`offset_for_leader_epoch` and `describe_producers` serve requests about the same logs. `nearest_replica` names the
replica from which a consumer in another rack is to read (KIP-392). `services` declares what these handlers may use.
"""
