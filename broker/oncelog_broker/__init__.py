"""The broker: one process that speaks Kafka's protocol and keeps its data in Kafka's files.

`broker` is one broker: it starts the parts in `assembly/` in order, and stops them in the reverse. `command` is
`oncelog serve`, `dump/` is `oncelog dump`. From the edge inwards: `server/` takes requests from sockets to their
handlers; `sharing/` has the records of share groups at the leader of a partition; `coordinator/` has groups,
transactions and the state of share partitions, `controller/` decides which broker leads which partition; `replication/`
has partitions, the high watermark and the requests that wait for it; `log/` stores one partition on disk, `metadata/`
knows the cluster; `identity/` records what a data directory belongs to, and `starting/` compares that record with what
a start finds. `security/` authenticates clients and authorizes requests. `upkeep/` cleans and flushes between requests.
`config/` has Kafka's keys; `runtime/` is time, disk, network and tasks, `observability/` the broker's own log and its
counters, `metrics/` the metrics for Prometheus, `web/` the HTTP listener for metrics and health. `local_cluster/` runs
several brokers and their ZooKeeper on one machine, `workers/` runs the brokers of `oncelog serve --workers`,
`fail_control/` lets a test cause faults.
"""
