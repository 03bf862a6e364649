"""Tools for tests of applications: brokers as pytest fixtures, fault injection, and a checker for exactly once.

pytest imports `plugin`, which imports the other modules when a fixture is used. `broker` is one broker process.
`cluster` is several brokers with a ZooKeeper, which `zookeeper_keeper` runs. `in_process` is several brokers in the
test's own process, on an `unsynced_disk`. `registry` is a schema registry process. `first_lines` reads the first lines
that a process prints. `control` sets faults in a broker, and `topics` creates topics for tests. `container_start`
starts a broker in a container in place of Kafka. `judge/` serves tests in other languages. `application` records the
history of an application under test, `readers` reads the final content of topics, and `history/` checks the history
against this content. This package is installed together with the broker, but an application imports it only in its
tests. The broker itself does not import it.
"""
