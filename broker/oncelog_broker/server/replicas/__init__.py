"""Handlers for replicas and leaders of partitions, and the requests that this broker sends to other brokers about them.

`alter_partition` proposes an ISR, `elect_leaders` elects leaders, `controlled_shutdown` moves leaderships away from a
broker that stops. `alter_partition_reassignments` and `list_partition_reassignments` handle moves of partitions to
other brokers, `describe_log_dirs` describes the data directories, and `alter_replica_log_dirs` moves logs between them.
`controller_calls` sends this broker's own requests to the controller; `log_end_calls` sends the controller's requests
to other brokers. `services` declares what these handlers may use.
"""
