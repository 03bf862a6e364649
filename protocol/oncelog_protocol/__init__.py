"""Kafka's wire protocol: bytes <-> messages. No I/O, no clock, imports nothing of ours.

`schema` declares a message once over its versions, `wire` and `codec` turn the declaration into bytes, `messages/` has
one file per API, `records/` the record batches, `errors` the error table, `api` the API keys.
"""
