"""The metadata store of a cluster: ZooKeeper, through kazoo, which nothing outside this room imports.

`zookeeper_store` is the store. `session` is one session of it: all that we change in kazoo. `sockets` is how its
connection is read and waited for, `tls` what TLS takes there, `wake_ups` how its thread is woken, `requests` what it
sends. `access` says who we are to the servers, and `acls` what others may do with our nodes.
"""
