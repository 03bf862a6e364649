"""ZooKeeper for tests: `fixtures` gives servers and chroots, `shared_server` is the one that all workers of a run use,
`cutting_proxy` stands between a client and its servers and cuts, holds or loses what `frames` has told apart.
"""
