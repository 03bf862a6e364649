"""Provides ZooKeeper servers, and a fault-injecting proxy, for tests. `fixtures` provides servers and chroots,
`shared_server` is the server that all workers of a run
share, and `cutting_proxy` forwards between a client and its servers, and can cut connections and hold or lose frames.
`frames` parses ZooKeeper's frames.
"""
