"""Reads topics from Apache Kafka's own metadata log, for a broker that takes over Kafka's data directory.

- `__cluster_metadata-0/00000000000000000000.log` is the metadata log; each record in it is one change of the metadata.
- `__cluster_metadata-0/00000000000000007843-0000000002.checkpoint` is a snapshot of the metadata at offset 7843.

The logs of topics do not contain the configuration of these topics. Without the settings in the metadata log, a
compacted topic, or a topic with unlimited retention, would lose its old records to the default retention immediately
after the takeover.

A record's value has a frame of three unsigned varints (frame version 1, record type, record version), followed by a
message in Kafka's flexible encoding. This module reads three record types, and skips all other types. The formats are
those of Kafka's MetadataRecordSerde, KIP-631 (TopicRecord, ConfigRecord, RemoveTopicRecord) and KIP-630 (snapshots).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import Final

from oncelog_broker.log.directories.data_directory import METADATA_TOPIC
from oncelog_broker.log.segments.batch_scan import scan_batches
from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.record import read_records
from oncelog_protocol.wire_readers import read_compact_nullable_string, read_compact_string, read_uvarint

logger = logging.getLogger(__name__)

FRAME_VERSION: Final = 1
TOPIC_RECORD: Final = 2
CONFIG_RECORD: Final = 4
REMOVE_TOPIC_RECORD: Final = 9
RECORD_VERSION: Final = 0
TOPIC_RESOURCE: Final = 2
UUID_SIZE: Final = 16

_LOG_FILE = re.compile(r"\d{20}\.log")
_SNAPSHOT_FILE = re.compile(r"\d{20}-\d{10}\.checkpoint")


def read_topic_configs(disk: Disk, data_directory: str) -> dict[str, dict[str, str]]:
    """Return the settings of each topic in the metadata log; topics without settings of their own are omitted. Raises
    OSError.
    """
    return {topic: settings for topic, settings in read_topics(disk, data_directory).items() if settings}


def read_topics(disk: Disk, data_directory: str) -> dict[str, dict[str, str]]:
    """Return the settings of each topic in the metadata log, by topic name; the values of settings are not validated.
    The result is empty if the directory has no metadata log. Raises OSError.

    Reading stops with a warning at the first unreadable record, because the end of the log may be torn.
    """
    directory = os.path.join(data_directory, f"{METADATA_TOPIC}-0")
    state = _TopicConfigs()
    if not disk.is_directory(directory):
        return {}
    try:
        for value in _record_values(disk, directory):
            state.replay(value)
    except (CorruptBatch, MalformedMessage, IndexError) as error:
        logger.warning("%s: reading ends at an unreadable record: %s", directory, error)
    return {topic: dict(state.configs.get(topic, {})) for topic in state.topics} | {
        topic: dict(settings) for topic, settings in state.configs.items() if settings
    }


def _record_values(disk: Disk, directory: str) -> Iterator[memoryview]:
    """Yield the values of the records in the latest snapshot, and of the records after that snapshot. Raises
    CorruptBatch, OSError.
    """
    names = disk.list_directory(directory)
    snapshots = sorted(name for name in names if _SNAPSHOT_FILE.fullmatch(name))
    logs = sorted(name for name in names if _LOG_FILE.fullmatch(name))
    start = 0
    if snapshots:
        start = int(snapshots[-1].partition("-")[0])
        yield from _values_of(disk, os.path.join(directory, snapshots[-1]), 0)
    for name in logs:
        yield from _values_of(disk, os.path.join(directory, name), start)


def _values_of(disk: Disk, path: str, from_offset: int) -> Iterator[memoryview]:
    file = disk.open_briefly(path)
    try:
        for _, batch in scan_batches(file, 0, file.size):
            if batch.is_control or batch.last_offset < from_offset:
                continue
            for record in read_records(batch):
                if record.value is not None and record.offset >= from_offset:
                    yield memoryview(record.value)
    finally:
        file.close()


class _TopicConfigs:
    """The settings of topics according to the metadata records that were applied so far."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self._names: dict[bytes, str] = {}

    @property
    def topics(self) -> list[str]:
        """Names of the topics that were created and not removed by the records so far."""
        return list(self._names.values())

    def replay(self, value: memoryview) -> None:
        """Apply one metadata record. Raises MalformedMessage, IndexError."""
        frame, at = read_uvarint(value, 0)
        kind, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
        if frame != FRAME_VERSION:
            raise MalformedMessage(f"a metadata record in frame version {frame}, only {FRAME_VERSION} is supported")
        if version != RECORD_VERSION:
            return
        if kind == TOPIC_RECORD:
            name, at = read_compact_string(value, at, len(value))
            self._names[bytes(value[at : at + UUID_SIZE])] = name
        elif kind == REMOVE_TOPIC_RECORD:
            self.configs.pop(self._names.pop(bytes(value[at : at + UUID_SIZE]), ""), None)
        elif kind == CONFIG_RECORD and value[at] == TOPIC_RESOURCE:
            topic, at = read_compact_string(value, at + 1, len(value))
            key, at = read_compact_string(value, at, len(value))
            setting, at = read_compact_nullable_string(value, at, len(value))
            settings = self.configs.setdefault(topic, {})
            if setting is None:
                settings.pop(key, None)
            else:
                settings[key] = setting
