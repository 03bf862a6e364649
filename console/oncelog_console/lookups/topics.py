"""Topics: their sizes and numbers of partitions; and one topic, with its partitions and settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog import TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, ConfigEntry, ConfigResource, LogDirectory
from oncelog.cluster import NO_NODE, Partition, Topic
from oncelog_console.lookups.brokers import Directories, all_topics, log_dirs
from oncelog_console.lookups.missing import Missing, had
from oncelog_protocol.messages.fetch import IsolationLevel


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic in the list; `size`: bytes of all replicas, None if no broker reports them."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    out_of_sync: int
    size: int | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """`lags`: the number of records by which each lagging replica is behind, by broker id. The partition's offsets are
    None if the partition has no leader.
    """

    known: Partition
    beginning: int | None
    last_stable: int | None
    end: int | None
    size: int | None
    lags: dict[int, int]

    @property
    def held_back(self) -> int:
        return 0 if self.end is None or self.last_stable is None else max(0, self.end - self.last_stable)


@dataclass(slots=True)
class TopicView:
    topic: Topic
    partitions: list[PartitionView]
    configs: list[ConfigEntry]
    missing: Missing = field(default_factory=dict)


async def rows(admin: Admin) -> tuple[list[TopicRow], Missing]:
    """Return the topics sorted by name. Raises KafkaError if the cluster cannot be reached."""
    missing: Missing = {}
    topics = await all_topics(admin)
    sizes = _sizes(await log_dirs(admin, missing))
    return [
        TopicRow(
            name,
            topic.is_internal,
            len(topic.partitions),
            max((len(known.replicas) for known in topic.partitions.values()), default=0),
            sum(bool(set(known.replicas) - set(known.isr)) for known in topic.partitions.values()),
            sum(sum(sizes.get((name, index), {}).values()) for index in topic.partitions) if sizes else None,
        )
        for name, topic in sorted(topics.items())
    ], missing


async def look(admin: Admin, name: str) -> TopicView:
    """Return the state of a topic. Raises StaleMetadata for a topic that does not exist, and other KafkaErrors."""
    missing: Missing = {}
    topic = (await admin.describe_topics([name]))[name]
    directories = await log_dirs(admin, missing)
    sizes, lags = _sizes(directories), _lags(directories)
    led = [TopicPartition(name, index) for index, known in topic.partitions.items() if known.leader != NO_NODE]
    first, stable, last = await _ends(admin, led, missing)
    resource = ConfigResource.topic(name)
    configs = await had(missing, "settings", admin.describe_configs([resource], include_documentation=True), {})
    partitions = [
        PartitionView(
            known,
            first.get(index),
            stable.get(index),
            last.get(index),
            sizes.get((name, index), {}).get(known.leader),
            {broker: lag for broker, lag in lags.get((name, index), {}).items() if broker != known.leader},
        )
        for index, known in sorted(topic.partitions.items())
    ]
    entries = sorted(configs.get(resource, {}).values(), key=lambda entry: (entry.is_default, entry.name))
    return TopicView(topic, partitions, entries, missing)


Offsets = dict[int, int]


async def _ends(admin: Admin, led: list[TopicPartition], missing: Missing) -> tuple[Offsets, Offsets, Offsets]:
    """Return the first offsets, the last stable offsets and the high watermarks."""
    found: list[Offsets] = []
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    for timestamp, level in (
        (EARLIEST_TIMESTAMP, uncommitted),
        (LATEST_TIMESTAMP, committed),
        (LATEST_TIMESTAMP, uncommitted),
    ):
        asked = admin.list_offsets(dict.fromkeys(led, timestamp), isolation_level=level)
        answers = await had(missing, "offsets", asked, {})
        found.append({key.partition: answer.offset for key, answer in answers.items()})
    return found[0], found[1], found[2]


def _sizes(directories: Directories) -> dict[tuple[str, int], dict[int, int]]:
    """Return the size of each replica in bytes, by broker id."""
    sizes: dict[tuple[str, int], dict[int, int]] = {}
    for broker, paths in directories.items():
        for directory in paths.values():
            if isinstance(directory, LogDirectory):
                for where, replica in directory.replicas.items():
                    sizes.setdefault((where.topic, where.partition), {})[broker] = replica.size
    return sizes


def _lags(directories: Directories) -> dict[tuple[str, int], dict[int, int]]:
    lags: dict[tuple[str, int], dict[int, int]] = {}
    for broker, paths in directories.items():
        for directory in paths.values():
            if isinstance(directory, LogDirectory):
                for where, replica in directory.replicas.items():
                    if replica.offset_lag > 0 and not replica.is_future:
                        lags.setdefault((where.topic, where.partition), {})[broker] = replica.offset_lag
    return lags
