"""SASL mechanisms as state machines without I/O: token in, token or verdict out.

`exchange` selects the mechanism and says which requests are allowed when; `mechanism` is the common protocol of
`plain`, `scram` and `oauthbearer`. `jaas` reads their settings, `credentials` is the stored form of a SCRAM password,
`decoys` stand in for credentials of unknown users, `jwks` has the keys that verify tokens, which `timed_get` fetches.
Only `timed_get` uses sockets; the caller supplies the time.
"""
