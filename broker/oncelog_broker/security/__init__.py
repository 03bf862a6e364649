"""Authentication, authorization and quotas. These modules do not depend on connections and handlers, which are in
`server/`.

`principal` is an authenticated identity. `tls/` and `sasl/` authenticate principals, `listener_security` has the
security of one listener and `securities` that of all listeners, `first_users` creates initial users, `authorizer/`
checks ACLs, `quotas/` limits rates. `zookeeper_tls` is TLS to ZooKeeper. `weak_settings` warns at startup about
settings that give less security than an administrator may expect.
"""
