"""A cluster on one machine, for development and tests: real ZooKeeper servers and broker processes, started by us.

`java` and `zookeeper_jars` find what ZooKeeper needs, or fetch it; `server_config` writes the file that a server reads;
`ports` chooses where the servers listen, `process` is one that we may signal and no other; `ensemble` puts these
together.
"""
