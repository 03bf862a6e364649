"""A cluster on one machine, for development and tests: real ZooKeeper servers and broker processes, started by us.

`command` is `oncelog cluster`, and `cluster` what it does; `state` is what is kept between two commands, and
`broker_process` how a broker is started and seen to serve. `java` and `zookeeper_jars` find what ZooKeeper needs, or
fetch it; `server_config` writes the file that a server reads, `ensemble` has the servers. `ports` chooses where they
listen; `process` is one that we may signal, and no other.
"""
