"""Share coordinators: store the state of share partitions in `__share_group_state` (KIP-932).

A share partition is the pair of a partition and a share group that reads the partition. The leader of the partition
keeps the state of the share partition in memory. The leader sends the durable part of this state to the share
coordinator, which stores it.

`share_key` identifies a share partition, `state_batches` merges the delivery states of its records, `share_state` is
the state of one share partition, and `share_state_records` has the logged records. `share_state_machine` is the state
machine of one partition of the topic. `share_coordinator` runs the state machines and deletes old records.
`share_state_calls` sends requests to the share coordinators of all brokers.
"""
