"""Limits how many of the available offsets go into the next batch: maxOffsetsPerTrigger, maxBytesPerTrigger and similar
options. Pure.

The limits count offsets, not records, because control batches and aborted or compacted records leave gaps of unknown
size.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog import TopicPartition
from oncelog_pipeline.source.offsets import Offsets


def sizes(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
    """Return for each partition the number of offsets between `start` and `end`; partitions whose number is 0 are
    omitted.
    """
    return {
        partition: end[partition] - start.get(partition, 0)
        for partition in sorted(end)
        if end[partition] > start.get(partition, 0)
    }


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int | None) -> Offsets:
    """Return the end of a batch of at most `most` offsets, which are shared in proportion to the available offsets of
    each partition.

    Each partition with records gets at least one offset, if possible, so that a small partition does not starve beside
    a large one. The shares are rounded down, and the remaining offsets go to the partitions that lost most by rounding.
    Ties are broken by partition name, so that equal input always gives an equal batch.
    """
    there = sizes(start, end)
    total = sum(there.values())
    if most is None or total <= most:
        return dict(end)
    if most <= len(there):
        granted = dict.fromkeys(sorted(there, key=lambda partition: -there[partition])[:most], 1)
    else:
        exact = {partition: size * most / total for partition, size in there.items()}
        granted = {partition: max(1, int(share)) for partition, share in exact.items()}
        _level(granted, exact, there, most)
    return {
        partition: min(offset, start.get(partition, 0) + granted.get(partition, 0)) if partition in there else offset
        for partition, offset in end.items()
    }


def _level(granted: Offsets, exact: Mapping[TopicPartition, float], there: Offsets, most: int) -> None:
    """Adjust the total of `granted` to `most`: add offsets to the partitions that are furthest below their proportional
    share, or remove offsets from those that are furthest above it.
    """
    while (spare := most - sum(granted.values())) != 0:
        step = 1 if spare > 0 else -1
        able = [each for each in granted if (granted[each] < there[each] if step > 0 else granted[each] > 1)]
        able.sort(key=lambda partition: (step * (granted[partition] - exact[partition]), partition))
        for partition in able[: abs(spare)]:
            granted[partition] += step


def offsets_in(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    mean_bytes: Mapping[TopicPartition, float],
    most_bytes: int,
) -> int:
    """Return how many offsets a batch of at most about `most_bytes` may read (maxBytesPerTrigger); at least 1.

    The number is an estimate. `mean_bytes` maps a partition to the average bytes of one offset in its log. A partition
    without an entry is assumed to have the average of the other partitions.
    """
    there = sizes(start, end)
    total = sum(there.values())
    known = {partition: size for partition, size in there.items() if partition in mean_bytes}
    if not known:
        return max(1, total)
    known_bytes = sum(size * mean_bytes[partition] for partition, size in known.items())
    expected = known_bytes * total / sum(known.values())
    return max(1, total if expected <= most_bytes else int(total * most_bytes / expected))


def is_worth_a_batch(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    least: int | None,
    waited_s: float,
    longest_s: float,
) -> bool:
    """Return whether a batch should begin now. That is the case if at least `least` offsets are available
    (minOffsetsPerTrigger), or if any offset is available and the last batch was `longest_s` seconds ago
    (maxTriggerDelay).
    """
    there = sum(sizes(start, end).values())
    return least is None or there >= least or (there > 0 and waited_s >= longest_s)
