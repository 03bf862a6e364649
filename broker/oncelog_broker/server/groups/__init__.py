"""Handlers of consumer groups and their offsets.

Members: `join_group`, `sync_group`, `heartbeat`, `leave_group` (classic protocol) and `consumer_group_heartbeat`
(consumer protocol). Groups: `list_groups`, `describe_groups`, `consumer_group_describe`, `delete_groups`. Offsets:
`offset_commit`, `offset_fetch`, `offset_delete`. Share groups: `share_group_heartbeat`, `share_group_describe`,
`describe_share_group_offsets`, `alter_share_group_offsets`, `delete_share_group_offsets`. Streams groups:
`streams_group_heartbeat`, `streams_group_describe`; `internal_topic_creations` creates their internal topics.
`find_coordinator` says which broker coordinates a group, a transactional id or a share partition. `services` declares
what these handlers may use."""
