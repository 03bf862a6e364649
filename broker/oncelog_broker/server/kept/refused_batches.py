"""The first batches that producers were refused for a passing reason: they come again, and before all others.

Clients send several batches without waiting for answers. A broker that hears a moment later than they do that it leads
a partition refuses the first ones, and is the leader when the next ones of the same sending arrive. Kafka tells these
OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then goes on with a new epoch, in which it also numbers anew what the leader
before had taken, and replicated, without an answer: that would be there twice. And where a partition knows
nothing of a producer, it would take the later batch for its first one, and refuse the first one for ever.

So a batch behind a refused batch is refused for the same reason until the first one is sent again. This lasts some
seconds only: if a producer sends the first one to another broker, it must learn the real error of the later one. Pure.

Anybody can have something noted here, of any producer and of topics that are not there: so it is little, and short.
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
"""Longer than what was sent with the refused one is on its way."""


class Destination(NamedTuple):
    """A partition as its producer names it, always alike: a broker that has not heard of it yet knows no other name."""

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
    """Partition and producer id -> what was refused with the lowest sequence. Times: monotonic, in seconds."""

    def __init__(self) -> None:
        self.lowest: OrderedDict[tuple[Destination, int], Refused] = OrderedDict()
        """The lowest refused sequence of each partition and producer id, the newest entry last."""

    def note(
        self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, reason: ErrorCode, now: float
    ) -> None:
        """Note that a batch of `producer` that begins with `sequence` was refused for this temporary `reason`."""
        if len(where.topic) > MAX_TOPIC_NAME_CHARS:
            return  # no such topic will ever be there
        key = where, producer.producer_id
        before = self._remembered(key, now)
        if before is not None and (-before.epoch, before.sequence) < (-producer.epoch, sequence):
            return
        self.lowest[key] = Refused(producer.epoch, sequence, reason, now)
        self.lowest.move_to_end(key)
        if len(self.lowest) > MAX_REFUSED:
            self.lowest.popitem(last=False)

    def reason(self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, now: float) -> ErrorCode | None:
        """Why a batch that comes before the one that begins with `sequence` was refused; None: none was."""
        first = self._remembered((where, producer.producer_id), now)
        if first is None or first.epoch != producer.epoch or sequence <= first.sequence:
            return None
        return first.reason

    def forget(self, where: Destination, producer_id: int, now: float) -> None:
        """A batch of the producer is in the log, which knows from now on what comes next."""
        self.lowest.pop((where, producer_id), None)
        oldest = next(iter(self.lowest.values()), None)
        if oldest is not None and self._is_over(oldest, now):
            self.lowest.popitem(last=False)  # so that there soon is nothing to look up for those who come next

    def _remembered(self, key: tuple[Destination, int], now: float) -> Refused | None:
        first = self.lowest.get(key)
        if first is not None and self._is_over(first, now):
            del self.lowest[key]
            return None
        return first

    @staticmethod
    def _is_over(refused: Refused, now: float) -> bool:
        return now - refused.at > REMEMBERED_SECONDS
