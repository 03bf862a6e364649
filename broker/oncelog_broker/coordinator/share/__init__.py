"""Share coordinators: store the state of share partitions in `__share_group_state` (KIP-932).

A share partition is one partition as it is read by one share group. The leader of the partition has the state of the
share partition in memory, and writes the durable part of this state to the share coordinator of that share partition.

`share_key` identifies a share partition, `state_batches` merges the delivery states of its records, `share_state` is
the state of one share partition, and `share_state_records` has the logged records. `share_state_machine` is the state
machine of one partition of the topic. `share_coordinator` runs the state machines and deletes old records.
`share_state_calls` sends requests to the share coordinators of all brokers.
"""
