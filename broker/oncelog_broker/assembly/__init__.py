"""The five parts of a broker, in the order in which the parts start; each part uses the earlier parts.

storage.py        the data directories, the metadata store and the logs
membership.py     this broker's registration in its cluster, the controller role, and the image of the cluster
replication.py    the partitions that this broker leads and follows
coordinators.py   the groups, transactions and share partitions that this broker coordinates
serving.py        handles requests, with the value in services.py

All parts use settings.py, the current configuration. socket_server.py has the listening sockets. These sockets are
bound before the broker registers, since the registration names their ports, and accept connections when everything else
is ready.

The arguments of a part's `start` are everything that the part needs. `start` returns a working part; if `start` fails,
it closes everything that it has opened, and raises an exception. `close` stops a part and releases what the part has
opened. Only `Broker._start` knows the order in which the parts start and close.

Two parts are completed after their creation, because each needs a later part: `LogEndCalls.begin` (a broker may be
controller before it has replicas) and `SocketServer.learn_users` (sockets are bound before the broker can register).
"""
