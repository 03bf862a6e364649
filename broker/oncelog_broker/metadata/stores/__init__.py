"""The metadata stores of a broker or cluster. `store` defines the common interface of all stores; one set of tests
checks every store.

`zookeeper/` is the store of a cluster, `embedded` is the store of a single broker, and `in_memory` is a store for
several brokers in one process. `embedded` and `in_memory` each extend `tree_store`, which keeps its nodes in a `tree`.
`supervised/` serves an embedded store to the workers of one machine. `write_ahead_log` checks whether the write-ahead
log beside an embedded store's file belongs to that file. All stores use `watches`. `lease` computes from heartbeats
until when a session proves that this broker still owns its id.
"""
