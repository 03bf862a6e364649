"""For tests of applications: brokers as pytest fixtures, faults on demand, and a check that results are exactly once.

`plugin` is what pytest loads, and imports nothing else until a fixture is asked for. `broker` is one broker process,
`cluster` several with a ZooKeeper, which `zookeeper_keeper` holds, and `in_process` several in the test's own process,
on an `unsynced_disk`; `registry` is a schema registry process. `control` orders the faults of a broker, and `topics`
creates topics for tests. `application` is the history of an application, `readers` read the topics in the end, and
`history/` judges both.

Applications install this package with the broker, and import it only in tests. The broker does not import it.
"""
