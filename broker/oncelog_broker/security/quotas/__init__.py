"""Client quotas: rates, and how long a client over its quota must wait (KIP-13, KIP-124, KIP-599, KIP-612). Pure: the
caller supplies the time; independent of connections and requests.

`limits` finds the quota of a user and client id, `client_limits` holds all quotas of one client; `usage` keeps a
`bucket` (token bucket) for each and computes waits. `observed` keeps the rates for metrics.
"""
