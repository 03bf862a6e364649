"""Converts offsets of many partitions from and to the JSON of Spark's own Kafka connector: {"topic": {"0": 23, "1":
-2}}. Pure.

Checkpoints contain offsets in this form, so either connector can continue from a checkpoint of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncelog import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""Stands for the first offset of a partition."""
FROM: Final = "_from"
"""A key beside the topics in the JSON of a batch's end, used if the batch does not begin where the previous batch
ended; its value is the beginning of the batch.

Batch 0 has this key: if the query restarts before batch 0 is in the checkpoint, Spark requests the beginning again, and
"latest" would then mean a later offset. A batch with new partitions, or with partitions whose first offset has
increased, has this key, too.
"""
IDS: Final = "_ids"
"""Key beside the topics; its value is the id of each topic. The ids show whether a topic was deleted and created again.
Offsets of an older release, or of Spark's own connector, have no ids.
"""
INITIAL: Final = "_initial"
"""This key marks the initial offset of a query, so that the end of batch 0 always differs from it. Spark writes batch 0
to its log only if the two differ.
"""
STREAM: Final = "_stream"
"""Key beside the topics; its value is the id of the stream, under which the cluster stores the stream's plans
(plans.py). Offsets of an older release, or of Spark's own connector, have no stream id.
"""
MARKS: Final = frozenset({FROM, IDS, INITIAL, STREAM})
"""Keys in the JSON of offsets that are not topics."""

Offsets = dict[TopicPartition, int]


class BadOffsets(ValueError):
    """The given text or parsed JSON does not have the form of offsets."""


def partitions_from_json(text: str) -> list[TopicPartition]:
    """Return the partitions in the JSON of the option `assign`, such as {"a": [0, 1]}. Raises BadOffsets."""
    found = [
        TopicPartition(topic, _index(index, text))
        for topic, indexes in _object(text).items()
        for index in _list(indexes, text)
    ]
    if len(set(found)) != len(found) or not found:
        raise BadOffsets(f"{text!r}: names no partition, or one twice")
    return sorted(found)


def offsets_from_json(text: str, *, least: int = 0) -> Offsets:
    """Return the number that the JSON has for each partition: an offset, LATEST, EARLIEST, or milliseconds. A number
    below `least` is an error. Raises BadOffsets.
    """
    return offsets_from(_object(text), least=least)


def offsets_from(read: Mapping[str, Any], *, least: int = 0) -> Offsets:
    """Return the offset of each partition in the parsed JSON of a checkpoint. Keys that begin with an underscore are
    not topics.
    Raises BadOffsets."""
    found: Offsets = {}
    for topic, of_topic in read.items():
        if topic in MARKS:
            continue
        if not isinstance(of_topic, Mapping):
            raise BadOffsets(f'{topic!r}: must be {{"partition": number}}, not {of_topic!r}')
        for index, offset in of_topic.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < least:
                raise BadOffsets(f"{topic!r}, partition {index}: {offset!r} must be a number from {least} on")
            found[TopicPartition(topic, _index(index, topic))] = offset
    return found


def offsets_to(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the offsets as parsed JSON for a checkpoint. The keys are sorted, so that equal offsets give equal
    texts.
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(index)] = offset
    return found


def end_with_start(end: Mapping[TopicPartition, int], start: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return the end of a batch, with the beginning of the batch under the key FROM."""
    return {**offsets_to(end), FROM: offsets_to(start)}


def ids_from(read: Mapping[str, Any]) -> dict[str, str]:
    """Return the id of each topic for which the offsets contain an id. Raises BadOffsets."""
    ids = read.get(IDS, {})
    if not isinstance(ids, Mapping) or not all(isinstance(each, str) for each in ids.values()):
        raise BadOffsets(f"{IDS}: {ids!r} must be {{topic: id}}")
    return dict(ids)


def with_ids(offsets: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the offsets with the known ids of their topics."""
    known = {topic: ids[topic] for topic in sorted(offsets) if topic in ids}
    return {**offsets, IDS: known} if known else dict(offsets)


def stream_from(read: Mapping[str, Any]) -> str | None:
    """Return the id of the stream that wrote these offsets. Raises BadOffsets."""
    stream = read.get(STREAM)
    if stream is not None and not isinstance(stream, str):
        raise BadOffsets(f"{STREAM}: {stream!r} must be a text")
    return stream


def batch_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Return where a batch begins: at the beginning that the JSON of its end contains, otherwise at the end of the
    previous batch. Raises BadOffsets.
    """
    return offsets_from(end.get(FROM, start))


def _object(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise BadOffsets(f"{text!r}: is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise BadOffsets(f'{text!r}: must be {{"topic": ...}}')
    return read


def _list(indexes: Any, text: str) -> Iterable[Any]:
    if not isinstance(indexes, list):
        raise BadOffsets(f'{text!r}: must be {{"topic": [0, 1]}}')
    return indexes


def _index(index: Any, where: str) -> int:
    try:
        number = int(index)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(index, (bool, float)):
        raise BadOffsets(f"{where!r}: {index!r} is not a partition number")
    return number
