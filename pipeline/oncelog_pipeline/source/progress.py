"""Decides where the next batch of a stream ends, with regard to new partitions, limits, and a fixed target. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog import TopicPartition
from oncelog_pipeline.source.admission import is_worth_a_batch, limited, offsets_in
from oncelog_pipeline.source.data_loss import check, losses, made_anew, readable
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.plans import Plans

NO_PLANS: Final = Plans()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a batch. `least` (offsets) and `longest_s` (seconds) do not apply with the trigger AvailableNow;
    `most` (offsets) and `most_bytes` apply to every batch.
    """

    most: int | None = None
    most_bytes: int | None = None
    least: int | None = None
    longest_s: float = 0.0
    fails_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Log:
    """The first offset and the end of each partition that the query subscribes to."""

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic, if the cluster has ids (from Kafka 2.8 on)."""
    mean_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)
    """For each partition whose size was requested: the average number of bytes per offset."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The next batch of a stream: it begins at `start` and ends at `end`. The warnings are sentences about accepted
    data loss.
    """

    start: Offsets
    end: Offsets
    warnings: list[str] = field(default_factory=list)


def next_batch(
    start: Mapping[TopicPartition, int],
    log: Log,
    limits: Limits,
    *,
    waited_s: float = 0.0,
    target: Mapping[TopicPartition, int] | None = None,
    ids: Mapping[str, str] | None = None,
    plans: Plans = NO_PLANS,
) -> NextBatch:
    """Return the next batch; `start` is the end of the previous batch. If there are too few offsets for a batch yet,
    the returned batch ends where it starts.

    `ids` are the known ids of the topics that were read up to `start`. A topic that was created again since then counts
    as lost, and is read from its beginning, like a new partition. `target` is the fixed end of a query with
    AvailableNow; later records are not read, and the minimum size of a batch does not apply. `plans` are the known
    plans of this stream; if the batch begins where one of these plans began, the batch also ends where that plan ended.
    Raises DataLoss.
    """
    anew = made_anew(start, ids or {}, log.ids)
    start = {partition: offset for partition, offset in start.items() if partition.topic not in anew}
    lost = [told for of_topic in anew.values() for told in of_topic] + losses(start, log.earliest, log.latest)
    if limits.fails_on_data_loss:
        check(lost)
    begin = readable(start, log.earliest, log.latest)
    begin |= {partition: offset for partition, offset in log.earliest.items() if partition not in start}
    if planned := plans.end_after(begin, log.latest, limits.most):
        return NextBatch(begin, planned, lost)
    end = dict(log.latest) if target is None else _up_to(target, log.latest)
    end = {partition: max(end.get(partition, offset), offset) for partition, offset in begin.items()}
    if target is None and not is_worth_a_batch(
        begin, end, least=limits.least, waited_s=waited_s, longest_s=limits.longest_s
    ):
        return NextBatch(begin, dict(begin), lost)
    most = limits.most
    if limits.most_bytes is not None:
        within = offsets_in(begin, end, log.mean_bytes, limits.most_bytes)
        most = within if most is None else min(most, within)
    return NextBatch(begin, limited(begin, end, most), lost)


def _up_to(target: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    return {partition: min(offset, latest[partition]) for partition, offset in target.items() if partition in latest}
