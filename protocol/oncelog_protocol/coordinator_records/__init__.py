"""The records of the internal topics in which coordinators keep their state, in Kafka's format.

`versioned` is the version prefix of each key and value, `consumer_offsets` the records of `__consumer_offsets`,
`transaction_state` those of `__transaction_state`.
"""
