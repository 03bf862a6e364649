"""Handlers that read and write records, and say where they are.

`produce` appends, in transactions by `transactional_append`; `fetch` reads, with `fetch_reads`, which knows consumers
from followers. `list_offsets`, `delete_records`, `offset_for_leader_epoch` and `describe_producers` are about the same
logs. `nearest_replica` names the replica from which a consumer in another rack should read (KIP-392). `services`
declares what these handlers may use.
"""
