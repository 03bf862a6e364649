"""Who asks, and what they may do. Nothing in here knows connections or handlers: `server/` asks these rooms.

`principal` is who somebody turned out to be. `tls/` and `sasl/` are how that is proved, `listener_security` all that
one listener asks for, `securities` those of all listeners, `first_users` are made at the start, `authorizer/` is what
they may do, `quotas/` how much. `zookeeper_tls` is how this broker reaches ZooKeeper. `weak_settings` says at the start
what protects less than it seems to.
"""
