"""Kafka's wire protocol: bytes <-> messages. No I/O, no clock, imports nothing of ours.

`wire` and `schema` declare a message once over its versions, `messages/` holds the declarations (one file per API),
`records/` the record batches, `errors` the error table, `api` the API keys and the version ranges that we serve.
"""
