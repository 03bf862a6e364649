"""Coordinators: state machines whose state is stored in a partition of an internal topic.

`runtime` binds state machines to led partitions (load, append, replay, reply after commit): a `shard` is one of them,
`loading` replays its log, `appending` writes to it, `effects` are the actions that a state machine requests, `timers`
its timers, `internal_topics` the topics themselves. `client` is the client id and host of a requester, `patterns`
matches names against RE2 patterns of clients. `group/` is the machine of groups, `transaction/` the machine of
transactions, `share/` the machine of share partitions."""
