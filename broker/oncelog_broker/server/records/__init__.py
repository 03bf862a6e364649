"""Handlers that read, write and delete records, and look up offsets.

`produce` appends records, and uses `transactional_append` for transactional records. `fetch` reads records; its module
`fetch_reads` has one reader for consumers and one for followers. `list_offsets`, `delete_records`,
`offset_for_leader_epoch` and `describe_producers` serve requests about the same logs. `nearest_replica` names the
replica from which a consumer in another rack is to read (KIP-392). `services` declares what these handlers may use.
"""
