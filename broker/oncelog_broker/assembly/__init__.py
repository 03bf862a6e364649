"""A broker put together of five parts, each of which starts with what the parts before it have made.

`storage` is the data directories, the metadata store and the logs; `membership` this broker's place in its cluster and
the image of that; `replication` the partitions that it leads and follows; `coordinators` its groups and transactions;
`serving` answers requests, with `services`. `settings` is the configuration as it is now, which all of them have.
`socket_server` has the sockets: they are bound before the broker registers with their ports, and accept when everything
else is ready.

A part is made by its `start`, which takes all it needs and either returns a part that works, or closes what it had
begun and raises. `close` ends it. The order of both stands in `Broker._start`, and nowhere else.

Two circles are cut by name: `LogEndCalls.begin` (a broker may be controller before it has replicas) and
`SocketServer.learn_users` (a socket is bound, and its certificates are read, before the broker can join).
"""
