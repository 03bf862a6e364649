"""Kafka's wire protocol: encodes and decodes messages. The package has no I/O and no clock, and imports no other
package of oncelog.

`schema` declares a message once over its `versions`; `wire` (with `wire_readers` and `wire_writers`) and `codec` encode
and decode it, and `templates` finds the constant bytes of a message that is sent repeatedly. `messages/` has one file
per API, `records/` the record batches, `coordinator_records/` the records of the internal topics, and
`consumer_protocol` the subscriptions and assignments that members of classic groups exchange. `errors` is the error
table, `api` the API keys, `features` the levels of finalised features, `scram` the formulas of a SCRAM login, `crc` the
checksum of record batches, `light_classes` the data classes and named tuples of all modules that a start imports;
`acls`, `elections`, `authorized_operations`, `quotas`, `producer_id` and `uuids` are value types.
"""
