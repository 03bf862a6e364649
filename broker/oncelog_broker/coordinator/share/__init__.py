"""Share coordinators: the state of share partitions, kept in `__share_group_state` (KIP-932).

A share partition is a partition as one share group sees it. The leader of the partition has its state in memory, and
writes what must survive it to the share coordinator of that share partition.

`share_key` names a share partition, `state_batches` merges what is known of its records, `share_state` is all that is
kept of one, `share_state_records` what is logged, `share_state_machine` all share partitions of one partition of the
topic, `share_coordinator` the rim, which also deletes old records. `share_state_calls` asks the share coordinators of
all brokers.
"""
