"""The rules that a simulated cluster must obey, at each step and at the end.

- `running` gives the judges access to the internal state of the running brokers.
- `last_look` tells a judge which partitions have changed since it last looked.
- `damage` tells the judges whether a damaged log is the only in-sync replica of a partition.
- `truth` reads in-sync replicas and registered brokers from the metadata store.
- `leaders`: each leader epoch of a partition has only one leader, and the high watermark of this leader never goes
back.
- `committed`: every in-sync replica has the records that a leader has exposed below its high watermark.
- `elections`: each state of a partition follows from the previous state.
- `decisions`: a complete transaction has its markers in all its partitions.
- `durable`: the records that a log counts as synced are on the disk of its machine.
- `unstable`: the last stable offset of a log that was just opened or truncated is not above an open transaction.
- `logs`: the files that a log stores beside its batches agree with the batches.
- `leases`: a broker whose session has expired does not act as leader.
- `laggards`: a replica that has fallen behind leaves the ISR.
- `tables`: each key of the compacted topic has its last value, in each replica.
- `content` reads the final content of topics.
- `share_locks`: at most one member of a share group has acquired a record at any time, and each delivery is counted.
- `streams_tasks`: an active task of a streams group has at most one member at any time, and after the faults each task
  has a member.
- `shared`: a share group loses no record, and no record is accepted twice.
- `histories` compares the responses that clients got with the final content.
- `settings`: the settings of a topic take effect in each of its logs.
- `resources`: no resources remain for clients that have ended.
"""
