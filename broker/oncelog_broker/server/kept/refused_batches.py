"""Remembers each producer's first batch that was refused for a retriable reason: the producer will retry this batch,
and the broker must append it before all later batches.

Clients send several batches without waiting for responses. A broker may learn later than the producers that it leads a
partition. Such a broker refuses the first batches of a producer, and may accept the producer's next batches, which
arrive a moment later. Kafka refuses those later batches with OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then continues
with a new epoch, and renumbers even batches that the previous leader had appended and replicated without sending a
response: these batches would be duplicated. If the partition's log has no state of the producer, the broker would even
accept a later batch as the producer's first batch, and then refuse the real first batch forever.

Therefore, after a refused batch, the broker refuses the producer's later batches with the same error until the producer
retries the refused batch. An entry expires after some seconds, because the producer may retry the first batch at
another broker; later batches must then get their real error from this broker. Pure.

Any client can cause entries, for any producer id and even for topics that do not exist. So the number, the size and the
lifetime of entries are limited.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.metadata.topic_names import MAX_TOPIC_NAME_CHARS
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MAX_REFUSED: Final = 10_000
"""The maximum number of remembered batches, which use five megabytes; the newest batches are kept."""
REMEMBERED_SECONDS: Final = 10.0
"""The number of seconds after which an entry expires. Batches that were sent together with the refused batch arrive
within this time.
"""


class Destination(NamedTuple):
    """A partition as the producer's request names it: by its topic's name or by its topic's id, and by its index. A
    broker without metadata of the partition cannot convert the name to the id, or the id to the name.
    """

    topic: str
    topic_id: bytes
    partition: int


class Refused(NamedTuple):
    epoch: int
    sequence: int
    reason: ErrorCode
    at: float
    """Monotonic time of the refusal, in seconds."""


class RefusedBatches:
    """For each partition and producer id: the refused batch with the lowest sequence. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.lowest: OrderedDict[tuple[Destination, int], Refused] = OrderedDict()
        """The lowest refused sequence of each partition and producer id, the newest entry last."""

    def note(
        self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, reason: ErrorCode, now: float
    ) -> None:
        """Remember that a batch of `producer` that begins with `sequence` was refused for the retriable `reason`."""
        if len(where.topic) > MAX_TOPIC_NAME_CHARS:
            return  # a topic of this name cannot exist
        key = where, producer.producer_id
        before = self._remembered(key, now)
        if before is not None and (-before.epoch, before.sequence) < (-producer.epoch, sequence):
            return
        self.lowest[key] = Refused(producer.epoch, sequence, reason, now)
        self.lowest.move_to_end(key)
        if len(self.lowest) > MAX_REFUSED:
            self.lowest.popitem(last=False)

    def reason(self, where: Destination, producer: ProducerIdAndEpoch, sequence: int, now: float) -> ErrorCode | None:
        """Return why a batch before the batch with `sequence` was refused; None if no earlier batch was refused."""
        first = self._remembered((where, producer.producer_id), now)
        if first is None or first.epoch != producer.epoch or sequence <= first.sequence:
            return None
        return first.reason

    def forget(self, where: Destination, producer_id: int, now: float) -> None:
        """Forget the refused batch: a batch of the producer was appended, so the log knows the producer's next sequence
        from now on.
        """
        self.lowest.pop((where, producer_id), None)
        oldest = next(iter(self.lowest.values()), None)
        if oldest is not None and self._is_over(oldest, now):
            self.lowest.popitem(last=False)  # drop the oldest entry, which has expired

    def _remembered(self, key: tuple[Destination, int], now: float) -> Refused | None:
        first = self.lowest.get(key)
        if first is not None and self._is_over(first, now):
            del self.lowest[key]
            return None
        return first

    @staticmethod
    def _is_over(refused: Refused, now: float) -> bool:
        return now - refused.at > REMEMBERED_SECONDS
