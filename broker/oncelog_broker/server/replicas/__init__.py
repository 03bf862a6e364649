"""Handlers about replicas and leaders of partitions, and requests that this broker sends to others about them.

`alter_partition` proposes an ISR, `elect_leaders` elects, `controlled_shutdown` moves leaders away from a broker that
stops. `alter_partition_reassignments` and `list_partition_reassignments` are about moves to other brokers,
`describe_log_dirs` about the disks. `controller_calls` are this broker's own requests to the controller,
`log_end_calls` its requests to other brokers as the controller. `services` declares what these handlers may use.
"""
