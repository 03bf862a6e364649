"""Coordinators: state machines whose state is what a partition of an internal topic holds.

`runtime` binds state machines to led partitions (load, append, replay, reply after commit): a `shard` is one of them,
`loading` replays its log, `appending` writes to it, `effects` what a state machine asks for, `timers` its timers,
`internal_topics` the topics themselves. `client` is the client id and host of a requester, `patterns` matches names
against RE2 patterns of clients.
`group/` is the machine of groups, `transaction/` that of transactions, `share/` that of share partitions."""
