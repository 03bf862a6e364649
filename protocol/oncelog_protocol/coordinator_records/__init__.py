"""The records of the internal topics in which coordinators store their state, in Kafka's format.

`versioned` reads and writes the version prefix of each key and value. `consumer_offsets` has the records of
`__consumer_offsets` for offsets and classic groups, `consumer_groups` those for groups of the consumer protocol,
`share_groups` those for share groups, and `streams_groups` those for streams groups. `transaction_state` has the
records of `__transaction_state`, and `share_group_state` the records of `__share_group_state`.
"""
