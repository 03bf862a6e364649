"""The broker: one process that speaks Kafka's protocol and keeps its data in Kafka's files.

`broker` is one broker: it starts the parts in `assembly/` in order, and stops them in the reverse. `command` is
`oncelog serve`, `dump/` is `oncelog dump`. From the edge inwards: `server/` takes requests from sockets to their
handlers; `sharing/` is the records of share groups at the leader of a partition; `coordinator/` is groups,
transactions and the state of share partitions, `controller/` who leads which partition; `replication/` is
partitions, high watermark and who waits for it; `log/` is one partition on disk, `metadata/` what the cluster is;
`identity/` is what a data directory remembers of its past, and `starting/` compares that with what a start finds.
`security/` is who asks and what they may do. `upkeep/` cleans and flushes between requests. `config/` has Kafka's keys;
`runtime/` is time, disk, network and tasks, `observability/` the broker's own log and what is counted at work,
`metrics/` what Prometheus is told, `web/` the HTTP listener for that and for health. `local_cluster/` runs several
brokers and their ZooKeeper on one machine, `fail_control/` lets a test say what shall go wrong.
"""
