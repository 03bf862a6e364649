"""Consumer groups: their members, the assignments of partitions, and the committed offsets.

The module `config` has the settings of groups. The classic protocol: `states` is the table of legal transitions between
the states of a group, `step` the context of one operation, `classic_group` one group with its members, `joining` and
`membership` handle requests and timers, `subscription` parses the subscriptions of members. The consumer protocol
(KIP-848): `consumer` has the groups of this protocol, `assigning` the assignors that the broker runs, `assignments` the
target and current assignments, `topic_view` the topics that a group may subscribe to, and `consumer_records` the
records in the log. Share groups (KIP-932): `share` has the groups, and `share_records` the records in the log. Streams
groups (KIP-1071): `streams` has the groups, `streams_tasks` the tasks, and `streams_records` the records in the log.
`record_kinds` has the tables of record types of the newer protocols. `other_groups` is the interface through which
`machine`, the state machine of all groups, uses share and streams groups. All protocols: `offsets` has committed
offsets, `commits` the checks of a commit, `transactional_offsets` the offsets of open transactions, `offset_removal`
the rules by which offsets are deleted, `commit_batch` the template of the batch of a commit, `usual_requests`
recognises the requests of a member that has nothing to do in its group, `held_bytes` the limit on the memory for
members' metadata, and `records` the records in the log. `machine` has all groups of one partition of
__consumer_offsets, `coordinator` connects this state machine to the rest of the broker, and `share_group_states`
initializes and deletes the share-partition states of groups. All modules except `coordinator` and `share_group_states`
are pure: their inputs are requests, records and timers, their outputs are `Effects` (records to log, replies, timers).
"""
