"""Client quotas: measures the rates of clients, and computes how long a client over its quota must wait (KIP-13,
KIP-124, KIP-599, KIP-612). These modules do no I/O: the caller supplies the time, and they do not depend on connections
and requests.

`limits` finds the quota of a user and client id, `client_limits` has all quotas of one client; `usage` keeps a `bucket`
(token bucket) for each quota and computes waits. `observed` keeps the rates for metrics.
"""
