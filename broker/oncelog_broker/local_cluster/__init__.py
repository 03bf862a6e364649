"""A cluster on one machine, for development and tests: real ZooKeeper servers and broker processes.

`command` is the command `oncelog cluster`, and `cluster` executes it. `state` stores the state between two commands.
`broker_process` starts a broker and checks that it serves. `java` and `zookeeper_jars` find or download Java and the
jars of ZooKeeper, `server_config` writes zoo.cfg, and `ensemble` runs the servers. The module `ports` chooses free
ports. `process` identifies a process by pid and start time, so that a signal never reaches another process that has got
the same pid.
"""
