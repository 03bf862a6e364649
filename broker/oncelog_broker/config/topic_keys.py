"""The configuration keys of topics, and the broker keys from which a topic key inherits its value.

A topic key gets its type and default from its broker keys. Of a topic key's broker keys, the first one that is set is
effective; the last one always has a value, because it has a default. Keys without effect (`inert_topic_keys`) and lists
of replicas (`throttle_keys`) have no broker keys. `log.retention.hours` and similar keys are converted to milliseconds.
This follows Kafka's TopicConfig and its table of broker synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog_broker.config import topic_defaults as defaults
from oncelog_broker.config.declared import ConfigKey
from oncelog_broker.config.inert_topic_keys import INERT_TOPIC_KEYS
from oncelog_broker.config.throttle_keys import TOPIC_THROTTLE_KEYS
from oncelog_protocol.light_classes import NamedTuple

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


class BrokerSynonym(NamedTuple):
    """A broker key from which a topic key inherits its value; `unit_ms` is the factor that converts minutes or hours to
    milliseconds.
    """

    key: ConfigKey[Any]
    unit_ms: int | None = None

    def to_topic_value(self, value: object) -> object:
        if self.unit_ms is None:
            return value
        assert isinstance(value, int)
        return value * self.unit_ms if value >= 0 else -1


class TopicKey(NamedTuple):
    """A topic key and, in order, the broker keys from which it inherits its value; a key without effect has no broker
    keys."""

    key: ConfigKey[Any]
    synonyms: tuple[BrokerSynonym, ...]


def _topic_key(name: str, doc: str, *synonyms: ConfigKey[Any] | BrokerSynonym) -> TopicKey:
    chain = tuple(synonym if isinstance(synonym, BrokerSynonym) else BrokerSynonym(synonym) for synonym in synonyms)
    first, last = chain[0].key, chain[-1]
    default = last.to_topic_value(last.key.default)
    return TopicKey(ConfigKey(name, first.type, default, doc, first.allowed), chain)


_DECLARED: Final = (
    _topic_key(
        "cleanup.policy",
        "delete: segments are deleted by retention.ms and retention.bytes. compact: the last record of each "
        "key is kept. Both policies may be set. If none is set, all records are kept.",
        defaults.LOG_CLEANUP_POLICY,
    ),
    _topic_key(
        "compression.type",
        "No effect: batches stay as the producer compressed them; the broker never recompresses.",
        defaults.COMPRESSION_TYPE,
    ),
    _topic_key(
        "delete.retention.ms",
        "The shortest time for which a tombstone stays in a compacted topic (the delete horizon). A tombstone "
        "also stays while a replica is out of sync.",
        defaults.LOG_CLEANER_DELETE_RETENTION_MS,
    ),
    _topic_key(
        "file.delete.delay.ms",
        "How long the broker keeps the files of a deleted segment for readers that have these files open.",
        defaults.LOG_SEGMENT_DELETE_DELAY_MS,
    ),
    _topic_key(
        "flush.messages",
        "The number of appended records after which the log is synced to disk. With 1, records are acknowledged and "
        "shown only when they are on the disk; all records that wait share one fsync.",
        defaults.LOG_FLUSH_INTERVAL_MESSAGES,
    ),
    _topic_key(
        "flush.ms",
        "The time in ms after which appended records are synced to disk.",
        defaults.LOG_FLUSH_INTERVAL_MS,
        defaults.LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    ),
    _topic_key(
        "index.interval.bytes",
        "The number of bytes of the log between two entries of the index.",
        defaults.LOG_INDEX_INTERVAL_BYTES,
    ),
    _topic_key(
        "max.compaction.lag.ms",
        "The longest time for which a record may stay uncompacted.",
        defaults.LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    ),
    _topic_key(
        "max.message.bytes",
        "The largest size of a record batch as sent (compressed), in bytes.",
        defaults.MESSAGE_MAX_BYTES,
    ),
    _topic_key(
        "message.timestamp.after.max.ms",
        "The largest allowed difference of a record's timestamp that is later than the broker's time.",
        defaults.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    ),
    _topic_key(
        "message.timestamp.before.max.ms",
        "The largest allowed difference of a record's timestamp that is earlier than the broker's time.",
        defaults.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    ),
    _topic_key(
        "message.timestamp.type",
        "Whether records have the producer's timestamp (CreateTime) or the time of the append (LogAppendTime).",
        defaults.LOG_MESSAGE_TIMESTAMP_TYPE,
    ),
    _topic_key(
        "min.cleanable.dirty.ratio",
        "A log is compacted when its uncompacted part exceeds this ratio.",
        defaults.LOG_CLEANER_MIN_CLEANABLE_RATIO,
    ),
    _topic_key(
        "min.compaction.lag.ms",
        "The shortest time for which a record stays uncompacted.",
        defaults.LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    ),
    _topic_key(
        "min.insync.replicas",
        "The number of in-sync replicas that acks=all requires. With fewer in-sync replicas, the append is refused.",
        defaults.MIN_INSYNC_REPLICAS,
    ),
    _topic_key("preallocate", "No effect: segments grow as they are written.", defaults.LOG_PREALLOCATE),
    _topic_key(
        "record.validation",
        "How thoroughly the broker validates a producer's batch, so that it stores no batch that consumers "
        "cannot read. header: validates the batch header and the CRC. frames: in an uncompressed batch, also "
        "validates the lengths of the first 8 records, and the end of the batch if it has no more records. "
        "full: validates every field of every record, also of compressed records, as Apache Kafka does, which "
        "costs half a microsecond per record. Only full finds errors in later records, compressed data that "
        "does not decompress, and timestamps that contradict the header. In a compacted topic all records are "
        "always validated.",
        defaults.LOG_RECORD_VALIDATION,
    ),
    _topic_key(
        "retention.bytes",
        "The size of a partition, in bytes, above which its oldest segments are deleted. -1 means no limit.",
        defaults.LOG_RETENTION_BYTES,
    ),
    _topic_key(
        "retention.ms",
        "The age in ms at which a segment is deleted. -1 means never.",
        defaults.LOG_RETENTION_MS,
        BrokerSynonym(defaults.LOG_RETENTION_MINUTES, MINUTE_MS),
        BrokerSynonym(defaults.LOG_RETENTION_HOURS, HOUR_MS),
    ),
    _topic_key(
        "segment.bytes",
        "The size of a segment, in bytes, at which the log rolls to a new segment.",
        defaults.LOG_SEGMENT_BYTES,
    ),
    _topic_key(
        "segment.index.bytes", "The largest size of a segment's index, in bytes.", defaults.LOG_INDEX_SIZE_MAX_BYTES
    ),
    _topic_key(
        "segment.jitter.ms",
        "The largest random time that is subtracted from segment.ms, so that not all partitions roll simultaneously.",
        defaults.LOG_ROLL_JITTER_MS,
        BrokerSynonym(defaults.LOG_ROLL_JITTER_HOURS, HOUR_MS),
    ),
    _topic_key(
        "segment.ms",
        "The age of a segment, in ms, at which the log rolls to a new segment.",
        defaults.LOG_ROLL_MS,
        BrokerSynonym(defaults.LOG_ROLL_HOURS, HOUR_MS),
    ),
    _topic_key(
        "unclean.leader.election.enable",
        "Whether an out-of-sync replica may be elected leader (unclean election), which may lose records. No "
        "effect with one replica.",
        defaults.UNCLEAN_LEADER_ELECTION_ENABLE,
    ),
)

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {
    declared.key.name: declared
    for declared in sorted(
        (*_DECLARED, *(TopicKey(key, ()) for key in (*INERT_TOPIC_KEYS, *TOPIC_THROTTLE_KEYS))),
        key=lambda it: it.key.name,
    )
}
"""Every topic key by name, in alphabetical order."""
