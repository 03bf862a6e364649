"""Handlers of who holds and who leads a partition, and what this broker asks others about that.

`alter_partition` proposes an ISR, `elect_leaders` elects, `controlled_shutdown` moves leaders away from a broker that
stops. `alter_partition_reassignments` and `list_partition_reassignments` are about moves to other brokers,
`describe_log_dirs` about the disks. `controller_calls` is what this broker asks of the controller on its own behalf,
`log_end_calls` what it asks of other brokers as the controller. `services` is what these handlers may reach.
"""
