"""A cluster on one machine, for development and tests: real ZooKeeper servers and broker processes.

`command` is `oncelog cluster`, `cluster` executes it; `state` is kept between two commands, `broker_process` starts a
broker and checks that it serves. `java` and `zookeeper_jars` find or fetch what ZooKeeper needs; `server_config` writes
zoo.cfg, `ensemble` runs the servers. `ports` chooses ports; `process` identifies a process so that no other is
signalled.
"""
