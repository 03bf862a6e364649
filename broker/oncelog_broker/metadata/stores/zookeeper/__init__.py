"""The metadata store of a cluster: ZooKeeper, through the library kazoo, which only this package imports.

`zookeeper_store` is the store. `session` is one ZooKeeper session, with all modifications of kazoo. `sockets` reads the
connection to a server and waits for data, `tls` adds TLS, `wake_ups` wakes kazoo's thread, and `requests` encodes
requests. `access` has the broker's identity for the servers, and `acls` has the rights of other clients on the broker's
nodes.
"""
