"""The metadata stores. `store` defines their common interface; the same tests run against all.

`zookeeper/` is the store of a cluster, `embedded` the store of a single broker, and `in_memory` one for several brokers
in one process. The latter two are a `tree_store`, which holds a `tree`. `supervised/` serves an embedded store to the
workers of one machine. `write_ahead_log` checks whether the log beside
an embedded store's file belongs to it. `watches` is shared by all stores, and `lease` is the rule by which a session
proves that this broker still owns its id.
"""
