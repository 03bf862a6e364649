"""Coordinators: state machines whose state is what a partition of an internal topic holds.

`runtime` binds shards to led partitions (load, append, replay, reply after commit), `effects` what a state machine asks
for, `timers` its timers, `partitioning` which partition a key belongs to, `internal_topics` the topics themselves.
`client` is who sends a request. `group/` is the machine of consumer groups, `transaction/` that of transactions.
"""
