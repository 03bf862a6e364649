"""Connections to brokers.

framing.py    (pure) size-delimited frames out of received bytes
protocol.py   (pure) requests to bytes, frames to responses, the queue of requests in flight
versions.py   (pure) which version of an API to speak with a broker
sasl.py       (pure) our side of the mechanisms of SASL
security.py   TLS and what we log in with, from the settings
weak_keys.py  (pure) what to say of a key that OpenSSL finds too weak
login.py      logging in, and again
transport.py  the socket around them        pool.py  one connection per broker, reconnecting
"""
