"""For tests of applications: brokers as pytest fixtures, faults on demand, and whether what came out is exactly once.

`plugin` is what pytest loads, and imports nothing else until a fixture is asked for. `broker` is one broker process,
`cluster` several with a ZooKeeper, which `zookeeper_keeper` holds, and `in_process` several in the test's own process,
on an `unsynced_disk`; `control` tells a broker what shall go wrong, and `topics` makes topics for tests. `application`
is the history of an application, `readers` find out what is there in the end, and `history/` judges it.

It is a room of its own, above the broker: applications install it with the broker and never import it outside tests,
and the broker does not know it.
"""
