"""Connections to brokers.

framing.py    (pure) cuts received bytes into size-delimited frames
protocol.py   (pure) encodes requests, decodes responses, tracks the requests in flight
versions.py   (pure) chooses the version of an API for a broker
sasl.py       (pure) the client's side of the SASL mechanisms
gssapi_client.py  the client's side of SASL GSSAPI (Kerberos), with a library
security.py   TLS and login settings
weak_keys.py  (pure) messages for keys that OpenSSL rejects as too weak
login.py      login, and re-authentication
transport.py  the socket of a connection    pool.py  one connection per broker, reconnecting
"""
