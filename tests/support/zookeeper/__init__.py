"""ZooKeeper for tests. `fixtures` provides servers and chroots, `shared_server` is the server that all workers of a run
share, and `cutting_proxy` sits between a client and its servers and cuts, holds or loses frames, which `frames` parses.
"""
