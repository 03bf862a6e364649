"""The five parts of a broker, in the order in which the parts start; each part uses the earlier parts.

storage.py        the data directories, the metadata store and the logs
membership.py     this broker's registration in its cluster, the controller role, and the image of the cluster
replication.py    the partitions that this broker leads and follows
coordinators.py   the groups, transactions and share partitions that this broker coordinates, when first needed
running_coordinators.py   imports, creates and runs these coordinators
serving.py        handles requests, with the value in services.py

All parts get the current configuration from settings.py. The module socket_server.py has the listening sockets. The
sockets are bound before the broker registers, because the registration names their ports. The sockets accept
connections when all parts are ready.

A part gets everything that it needs as arguments of its `start`. `start` returns a working part. If `start` fails, it
closes the files and connections that it has opened, and raises an exception. `close` stops a part, and closes the
files, connections and tasks that the part has opened. Only `Broker._start` knows the order in which the parts start and
close.

Two objects need a later part, so they are completed after their creation: `LogEndCalls.begin` (needs the replicas, but
a broker may be controller before it has them) and `SocketServer.learn_users` (needs the cluster's users, but the
sockets are bound before the broker can register).
"""
