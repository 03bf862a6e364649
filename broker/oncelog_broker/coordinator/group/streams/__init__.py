"""Streams groups (KIP-1071): the broker knows the topology of a Kafka Streams application, creates its internal topics,
and assigns its tasks. Pure.

`streams_topology`, `configured_topology` and `streams_member` are values, `streams_group` is the state, which
the log alone changes. `streams_step` is the context of one operation. A heartbeat goes through `heartbeat_request` (the
request and its checks), `heartbeat` (the changes, in order), `streams_target` (when and how the group is assigned),
`streams_reconcile` (how a member gets to its target) and `heartbeat_answer`; `endpoints` says which partitions the
members serve. `streams_leaving` is how members go, `streams_epochs` which epochs commits may name. `streams_groups` has
all streams groups of a machine, and is all that the machine knows of them.
"""
