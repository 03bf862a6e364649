"""The rules that a simulated cluster must obey, at each step and at the end.

- `running` has the running brokers, with access to their internal state.
- `truth` reads in-sync replicas and registered brokers from the metadata store.
- `leaders`: a leader epoch has one leader, whose high watermark never goes back.
- `committed`: every in-sync replica has the records that were exposed below a high watermark.
- `elections`: each state of a partition follows from the previous state.
- `decisions`: a complete transaction has its markers in all its partitions.
- `logs`: the data that a log stores beside its batches follow from the batches.
- `leases`: a broker whose session has expired does not lead.
- `laggards`: a replica that has fallen behind leaves the ISR.
- `tables`: each key of the compacted topic has its last value, in each replica.
- `content` reads the final content of topics.
- `share_locks`: a record of a share group is with one member, and each delivery is counted.
- `shared`: a share group loses no record, and no record is accepted twice.
- `histories` compares the responses that clients got with the final content.
- `settings`: the settings of a topic reach each log.
- `resources`: no resources remain for clients that have ended.
"""
