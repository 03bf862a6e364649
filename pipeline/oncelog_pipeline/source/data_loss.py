"""What can no longer be read although a query has still to read it: failOnDataLoss. Pure.

A gap *inside* a range is no loss: markers, aborted records and compaction leave gaps. So offsets are compared with
where the log begins and ends, and never counts of records with counts of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog import TopicPartition
from oncelog_pipeline.source.offsets import Offsets


class DataLoss(Exception):
    """Records that a query was to read are gone."""


def losses(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[str]:
    """What is lost of what comes from the `wanted` offsets on, one sentence for each partition.

    `earliest` and `latest` are the first offset and the end of each partition that there is now.
    """
    found = []
    for partition, offset in sorted(wanted.items()):
        if partition not in earliest or partition not in latest:
            found.append(f"{partition} is gone; it was read up to offset {offset}")
        elif offset < earliest[partition]:
            gone = f"offsets {offset} to {earliest[partition] - 1} are deleted"
            found.append(f"{partition}: {gone}; the log begins at {earliest[partition]}")
        elif offset > latest[partition]:
            found.append(
                f"{partition} ends at offset {latest[partition]}, but was read up to {offset}:"
                " was it deleted and made anew?"
            )
    return found


def made_anew(
    wanted: Mapping[TopicPartition, int], known: Mapping[str, str], ids: Mapping[str, str]
) -> dict[str, list[str]]:
    """Topic -> what is lost of it, where it was deleted and made anew since it was read: its records are others, though
    they may have the same offsets. `known`: the topics' ids as of then; `ids`: as they are now."""
    return {
        topic: [
            f"{partition} was read up to offset {offset} of a topic that was deleted; the one of that name is another"
            for partition, offset in sorted(wanted.items())
            if partition.topic == topic
        ]
        for topic, topic_id in sorted(known.items())
        if ids.get(topic, topic_id) != topic_id
    }


def check(lost: list[str]) -> None:
    """Raises DataLoss."""
    if lost:
        raise DataLoss(
            f"{'; '.join(lost)}. To go on with what there is, set failOnDataLoss=false; to keep this from happening,"
            " have topics kept for longer than a query may be down (retention.ms)"
        )


def readable(
    wanted: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Offsets:
    """Where to go on where losses do not matter: where the log begins now; without partitions that are gone."""
    return {
        partition: earliest[partition] if offset > latest[partition] else max(offset, earliest[partition])
        for partition, offset in sorted(wanted.items())
        if partition in earliest and partition in latest
    }
