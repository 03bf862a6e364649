"""The broker: one process that speaks Kafka's protocol and stores its data in Kafka's file formats.

`broker` is one broker: it starts the parts in `assembly/` in order, and stops them in reverse order. `command` is
`oncelog serve`, `dump/` is `oncelog dump`. The other packages, from the network to the disk: `server/` passes requests
from sockets to handlers. `telemetry/` has the metrics that clients push. `sharing/` has the in-flight records of share
groups at the leader of a partition. `coordinator/` has groups, transactions and the state of share partitions.
`controller/` decides which broker leads which partition. `replication/` has partitions, the high watermark and the
requests that wait for it. `log/` stores one partition on disk. `metadata/` reads and follows the metadata of the
cluster. `identity/` records the cluster and the store of a data directory, and `starting/` compares this record with
the facts at a start. `security/` authenticates clients and authorizes requests. `upkeep/` cleans and flushes logs
between requests. `config/` has the settings with Kafka's keys. `runtime/` provides time, disk, network and tasks.
`observability/` has the broker's log output and counters, `metrics/` the metrics for Prometheus, `web/` the HTTP
listener for metrics and health. `local_cluster/` runs several brokers and their ZooKeeper on one machine, and
`fail_control/` lets a test cause faults.
"""
