"""Connections to brokers.

framing.py    (pure) size-delimited frames from received bytes
protocol.py   (pure) requests to bytes, frames to responses, the queue of requests in flight
versions.py   (pure) chooses the version of an API for a broker
sasl.py       (pure) the client's side of the SASL mechanisms
gssapi_client.py  the client's side of SASL GSSAPI (Kerberos), by a library
security.py   TLS and login settings
weak_keys.py  (pure) messages for keys that OpenSSL rejects as too weak
login.py      login, and re-authentication
transport.py  the socket around them        pool.py  one connection per broker, reconnecting
"""
