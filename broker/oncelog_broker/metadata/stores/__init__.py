"""The metadata stores. `store` says what each of them does; the same tests run against all.

`zookeeper/` is the store of a cluster, `embedded` that of a broker alone, and `in_memory` one for several brokers in
one process. The latter two are a `tree_store`, which holds a `tree`. `write_ahead_log` tells whether the log beside an
embedded store's file belongs to it. `watches` is what all stores share, and `lease` the rule by which a session proves
that this broker is still the one with its id.
"""
