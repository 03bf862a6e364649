"""The metadata store of a cluster: ZooKeeper, through kazoo, which nothing outside this room imports.

`zookeeper_store` is the store. `session` is one session of it: all changes to kazoo. `sockets` reads its connection and
waits for it, `tls` adds TLS, `wake_ups` wakes its thread, `requests` encodes its requests. `access` has our identity
for the servers, and `acls` the rights of others on our nodes.
"""
