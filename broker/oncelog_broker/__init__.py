"""The broker: one process that speaks Kafka's protocol and stores its data in Kafka's file formats.

`broker` is one broker: it starts the parts in `assembly/` in order, and stops them in reverse order. `command` declares
the command `oncelog serve`, `serve` runs it, and `dump/` has the command `oncelog dump`. The other packages are listed
from the network to the disk. `server/` passes requests from sockets to handlers. `telemetry/` has the metrics that
clients push. `sharing/` keeps track of the records that share groups have acquired; it runs at the leader of a
partition. `coordinator/` has groups, transactions and the state of share partitions. `controller/` decides which broker
leads which partition. `replication/` has partitions, the high watermark and the requests that wait for it. `log/`
stores one partition on disk. `metadata/` reads and follows the metadata of the cluster. `identity/` records in each
data directory to which cluster and metadata store it belongs. At a start, `starting/` compares this record with the
cluster and the store that the broker finds. `security/` authenticates clients and authorizes requests. `upkeep/` cleans
and flushes logs between requests. `config/` has the settings with Kafka's keys. `runtime/` provides time, disk, network
and tasks. `observability/` has the broker's log output and counters, `metrics/` the metrics for Prometheus, `web/` the
HTTP listener for metrics and health. `local_cluster/` runs several brokers and their ZooKeeper on one machine,
`workers/` runs the brokers of `oncelog serve --workers`, and `fail_control/` lets a test cause faults.

The modules that implement Kafka's terms:

- purgatory, delayed produce, delayed fetch: `replication.purgatory`
- high watermark: `replication.high_watermark`
- last stable offset (LSO): `replication.replica`, `log.producers.state`
- in-sync replicas (ISR), ISR shrink, ISR expand: `replication.isr`, `replication.isr_keeper`
- leader epoch, log truncation: `log.leader_epochs`, `replication.truncation`
- fetch session: `server.kept.fetch_sessions`, `server.kept.session_partition`
- closest replica, rack awareness: `server.records.nearest_replica`
- zero copy, sendfile, mmap: `runtime.mappings` (Fetch writes from mapped files, and does not use sendfile)
- unclean election, preferred leader: `controller.election`, `controller.balancing`
- controller election: `controller.elector`
- controlled shutdown: `upkeep.controlled_shutdown`
- reassignment, reconcile: `controller.reassignment`, `controller.reconciler`
- idempotence, sequence number, producer epoch, fencing, zombie producer: `log.producers.state`
- producer snapshot, recovery point, log recovery: `log.producers.snapshot`, `log.log_state`,
  `log.segments.recovery`
- log compaction, tombstone, delete horizon: `log.compaction.compaction`, `log.compaction.batch_retention`
- segment roll, retention: `log.segments.roll`, `log.segments.retention`
- transaction coordinator, transaction marker: `coordinator.transaction.coordinator`,
  `coordinator.transaction.marker_sender`
- transaction timeout, transactional id expiration: `coordinator.transaction.machine`
- hanging transaction, verification of partitions: `coordinator.transaction.verification`
- two-phase commit: `coordinator.transaction.initialising`
- group coordinator, rebalance, generation: `coordinator.group.coordinator`, `coordinator.group.joining`
- offset commit, offset expiration: `coordinator.group.offsets`, `coordinator.group.offset_removal`
- acquisition lock, delivery count: `sharing.share_partition`
- share group, streams group: `coordinator.group.share`, `coordinator.group.streams`
- quota, throttle, token bucket: `security.quotas.limits`, `server.dispatch.throttling`,
  `security.quotas.bucket`
- replication throttle: `replication.throttle`
- back-pressure: `server.net.memory_budget`
- ACL, authorization, SASL, SCRAM: `security.authorizer`, `security.sasl.exchange`,
  `security.sasl.scram`
- log cleaner, flush, group commit: `upkeep.cleaning`, `log.flusher`, `replication.group_commit`
"""
