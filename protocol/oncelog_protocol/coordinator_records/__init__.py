"""The records of the internal topics in which coordinators keep their state, in Kafka's format.

`versioned` is the version prefix of each key and value, `consumer_offsets` the records of `__consumer_offsets` that are
offsets and classic groups, `consumer_groups` those of groups of the consumer protocol, `share_groups` those of
share groups, `streams_groups` those of streams groups, `transaction_state` those of `__transaction_state`,
`share_group_state` those of `__share_group_state`.
"""
