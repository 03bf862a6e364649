"""Finds records that were deleted before the query has read them: failOnDataLoss. Pure.

A gap *inside* a range is no loss: control batches, aborted records and compaction leave gaps. The module therefore
compares the query's offsets with the beginning and end of the log, instead of counting records.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog import TopicPartition
from oncelog_pipeline.source.offsets import Offsets


class DataLoss(Exception):
    """Records that a query should have read were deleted."""


def losses(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[str]:
    """Return one sentence for each partition that has lost records from the `wanted` offsets on.

    `earliest` and `latest` are the first offset and the end of each partition that exists now.
    """
    found = []
    for partition, offset in sorted(wanted.items()):
        if partition not in earliest or partition not in latest:
            found.append(f"{partition} no longer exists; it was read up to offset {offset}")
        elif offset < earliest[partition]:
            gone = f"offsets {offset} to {earliest[partition] - 1} are deleted"
            found.append(f"{partition}: {gone}; the log begins at {earliest[partition]}")
        elif offset > latest[partition]:
            found.append(
                f"{partition} ends at offset {latest[partition]}, but was read up to {offset}:"
                " was it deleted and re-created?"
            )
    return found


def made_anew(
    wanted: Mapping[TopicPartition, int], known: Mapping[str, str], ids: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return one sentence for each topic that was deleted and created again since the query read it. A topic that was
    created again has other records, even at the same offsets.

    `known` are the topic ids at the time of reading, `ids` the present topic ids.
    """
    return {
        topic: [
            f"{partition} was read up to offset {offset} of a topic that was deleted; the present topic with "
            "that name is another one"
            for partition, offset in sorted(wanted.items())
            if partition.topic == topic
        ]
        for topic, topic_id in sorted(known.items())
        if ids.get(topic, topic_id) != topic_id
    }


def check(lost: list[str]) -> None:
    """Raise DataLoss if `lost` contains any sentence about lost records."""
    if lost:
        raise DataLoss(
            f"{'; '.join(lost)}. To continue with the remaining records, set failOnDataLoss=false; to keep this "
            "from happening,"
            " have topics kept for longer than a query may be down (retention.ms)"
        )


def readable(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Offsets:
    """Return the offsets at which to continue if losses are accepted. An offset that the log no longer has, or does not
    have yet, is replaced by the beginning of the log; deleted partitions are omitted.
    """
    return {
        partition: earliest[partition] if offset > latest[partition] else max(offset, earliest[partition])
        for partition, offset in sorted(wanted.items())
        if partition in earliest and partition in latest
    }
