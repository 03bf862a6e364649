"""The messages of the protocol: one module for each API, with Kafka's name; `headers` has the headers that precede all
messages.
"""
