"""The first batches of producers that were refused for a retriable reason: they will be sent again, and must come
before all others.

Clients send several batches without waiting for answers. A broker that learns a moment later than the producers that it
leads a partition refuses the first batches, and is the leader when the next ones of the same pipeline arrive. Kafka
refuses those with OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then continues with a new epoch, in which it also renumbers
batches that the previous leader had appended, and replicated, without a response: these would be duplicated. And if a
partition does not know the producer, it would accept the later batch as its first one, and refuse the first one for
ever.

So a batch behind a refused batch is refused for the same reason until the first one is sent again. An entry lasts only
some seconds: if a producer sends the first batch to another broker, it must get the real error of the later one. Pure.

Any client can cause entries, for any producer and for topics that do not exist: so they are few, small, and
short-lived.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from oncelog_broker.metadata.topic_names import MAX_TOPIC_NAME_CHARS
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MAX_REFUSED: Final = 10_000
"""The newest are remembered: five megabytes."""
REMEMBERED_SECONDS: Final = 10.0
"""Longer than batches sent together with the refused one are in flight."""


class Destination(NamedTuple):
    """A partition as its producer names it, always in the same way: a broker that does not know it yet has no other
    name."""

    topic: str
    topic_id: bytes
    partition: int


class Refused(NamedTuple):
    epoch: int
    sequence: int
    reason: ErrorCode
    at: float
    """Monotonic, in seconds."""


class RefusedBatches:
    """Partition and producer id -> the refused batch with the lowest sequence. Times: monotonic, in seconds."""

    def __init__(self) -> None:
        self.lowest: OrderedDict[tuple[Destination, int], Refused] = OrderedDict()
        """The lowest refused sequence of each partition and producer id, the newest entry last."""

    def note(
        self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, reason: ErrorCode, now: float
    ) -> None:
        """Note that a batch of `producer` that begins with `sequence` was refused for this temporary `reason`."""
        if len(where.topic) > MAX_TOPIC_NAME_CHARS:
            return  # no such topic will ever exist
        key = where, producer.producer_id
        before = self._remembered(key, now)
        if before is not None and (-before.epoch, before.sequence) < (-producer.epoch, sequence):
            return
        self.lowest[key] = Refused(producer.epoch, sequence, reason, now)
        self.lowest.move_to_end(key)
        if len(self.lowest) > MAX_REFUSED:
            self.lowest.popitem(last=False)

    def reason(self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, now: float) -> ErrorCode | None:
        """Why an earlier batch than the one that begins with `sequence` was refused; None if none was."""
        first = self._remembered((where, producer.producer_id), now)
        if first is None or first.epoch != producer.epoch or sequence <= first.sequence:
            return None
        return first.reason

    def forget(self, where: Destination, producer_id: int, now: float) -> None:
        """A batch of the producer was appended: from now on the log knows its next sequence."""
        self.lowest.pop((where, producer_id), None)
        oldest = next(iter(self.lowest.values()), None)
        if oldest is not None and self._is_over(oldest, now):
            self.lowest.popitem(last=False)  # so that the lookup soon ends for later batches

    def _remembered(self, key: tuple[Destination, int], now: float) -> Refused | None:
        first = self.lowest.get(key)
        if first is not None and self._is_over(first, now):
            del self.lowest[key]
            return None
        return first

    @staticmethod
    def _is_over(refused: Refused, now: float) -> bool:
        return now - refused.at > REMEMBERED_SECONDS
