"""The five parts of which a broker is assembled, in the order in which they start; each uses the parts before it.

storage.py        the data directories, the metadata store and the logs
membership.py     this broker's registration in its cluster, the controller role, and the image of the cluster
replication.py    the partitions that this broker leads and follows
coordinators.py   its consumer groups and transactions
serving.py        answers requests, with the value in services.py

All of them use settings.py, the current configuration. socket_server.py has the sockets: they are bound before the
broker registers, since the registration names their ports, and accept connections when everything else is ready.

The `start` of a part takes all that the part needs. It returns a working part; if it fails, it closes what it has
opened, and raises. `close` ends the part. Only `Broker._start` has the order of starting and closing.

Two parts are completed after they are made, as they and a later part need each other: `LogEndCalls.begin` (a broker may
be controller before it has replicas) and `SocketServer.learn_users` (sockets are bound before the broker can register).
"""
