"""Streams groups (KIP-1071): the broker knows the topology of a Kafka Streams application, creates its internal topics,
and assigns its tasks. Pure.

`streams_topology`, `configured_topology` and `streams_member` define immutable values. `streams_group` is the state of
a group, which changes only when a logged record is applied to it (`replay`). `streams_step` is the context of one
operation. A heartbeat is handled by these modules, in this order: `heartbeat_request` (the request and its checks),
`heartbeat` (the changes in their order), `streams_target` (the target assignment), `streams_reconcile` (the steps of a
member to its target) and `heartbeat_answer` (the response). `endpoints` has the partitions that members serve to
interactive queries. `streams_leaving` removes members, and `streams_epochs` checks the epochs of commits.
`streams_groups` has all streams groups of a state machine, which uses only this module.
"""
