"""Handlers of consumer groups and their offsets.

Members: `join_group`, `sync_group`, `heartbeat`, `leave_group`; of the consumer protocol `consumer_group_heartbeat`.
Groups: `list_groups`, `describe_groups`, `consumer_group_describe`, `delete_groups`. Offsets: `offset_commit`,
`offset_fetch`, `offset_delete`. `find_coordinator` says which broker coordinates a group or a transactional id.
`services` declares what these handlers may use."""
