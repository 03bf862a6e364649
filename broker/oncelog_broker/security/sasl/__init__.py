"""SASL mechanisms as state machines without I/O: a client's token goes in, and a response token or a verdict comes out.

`exchange` selects the mechanism and decides which requests are allowed in each phase; `mechanism` is the common
protocol of `plain`, `scram` and `oauthbearer`. `jaas` reads the settings of mechanisms, `credentials` is the stored
form of a SCRAM password, `decoys` makes decoy credentials for unknown users, `jwks` has the keys that verify
OAUTHBEARER tokens; `timed_get` fetches these keys. Only `timed_get` uses sockets; the caller supplies the time.
"""
