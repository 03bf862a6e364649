"""Coordinators: state machines whose state is what a partition of an internal topic holds.

`runtime` binds state machines to led partitions (load, append, replay, reply after commit): a `shard` is one of them,
`loading` replays its log, `appending` writes to it, `effects` what a state machine asks for, `timers` its timers,
`internal_topics` the topics themselves. `client` is who sends a request, `patterns` what RE2 makes of its patterns.
`group/` is the machine of consumer groups, `transaction/` that of transactions."""
