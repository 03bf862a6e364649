"""Kafka's wire protocol: bytes <-> messages. No I/O, no clock, imports nothing of ours.

`schema` declares a message once over its `versions`; `wire`, on `wire_readers` and `wire_writers`, and `codec` turn the
declaration into bytes; `templates` says what stays the same in the bytes of a message that comes again. `messages/` has
one file per API, `records/` the record batches, `coordinator_records/` what coordinators log, `consumer_protocol` what
consumers tell one another. `errors` is the error table, `api` the API keys, `features` what finalised features mean,
`scram` the formulas of a login, `crc` the checksum; `acls`, `elections`, `authorized_operations`, `quotas`,
`producer_id` and `uuids` are kinds of values.
"""
