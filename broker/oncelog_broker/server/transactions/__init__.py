"""Handlers of producer ids and transactions.

In the order of their use in a transaction: `init_producer_id`, `add_partitions_to_txn`, `add_offsets_to_txn`,
`txn_offset_commit`, `end_txn`, and `write_txn_markers`, which the coordinator sends to the leaders of partitions.
`describe_transactions` and `list_transactions` describe transactions. `services` declares what these handlers may use.
"""
