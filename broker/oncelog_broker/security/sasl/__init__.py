"""SASL without connections: each mechanism is a machine, token in, token or verdict out.

`exchange` chooses one and says what may be sent when; `mechanism` is what they have in common, `plain`, `scram` and
`oauthbearer` are they. `jaas` reads their settings, `credentials` is what is kept of a password, `decoys` are in its
place for users that do not exist, `jwks` has the keys that tokens are signed with, which `timed_get` reads. But for
that one none of them knows sockets, and the time is told to them.
"""
