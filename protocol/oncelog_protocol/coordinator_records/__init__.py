"""The records of the internal topics in which coordinators keep their state, as Kafka lays them out.

`versioned` the version in front of each key and value, `consumer_offsets` the records of `__consumer_offsets`,
`transaction_state` those of `__transaction_state`.
"""
