"""Connections to brokers.

framing.py    (pure) size-delimited frames out of received bytes
protocol.py   (pure) requests to bytes, frames to responses, the queue of requests in flight
versions.py   (pure) which version of an API to speak with a broker
transport.py  the socket around them        pool.py  one connection per broker, reconnecting
"""
