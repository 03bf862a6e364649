"""Coordinators: state machines whose state is stored in a partition of an internal topic.

`runtime` runs one state machine for each partition that this broker leads. The runtime loads the partition's log,
appends records to the log, replays them (applies them to the state machine), and replies to clients after the commit. A
`shard` is one state machine with its partition. `loading` replays the log of a partition, `appending` writes to the
log. `effects` has the actions that a state machine requests from the runtime, `timers` the timers of a state machine,
`timer_wakes` runs the due timers. `internal_topics` has the settings of the internal topics. `client` has the client id
and host of the client that sent a request. `patterns` matches names against the RE2 patterns that clients send.
`later_imports` imports the coordinators in short steps, soon after the broker listens. `group/` is the state machine of
groups, `transaction/` of transactions, `share/` of share partitions.
"""
