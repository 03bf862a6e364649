"""The lowest sequences of batches that verification has refused and whose producers may send them again (KAFKA-14561).

A producer sends batch 0 and batch 1; the coordinator cannot be asked about the first one, and can about the second. Of
a producer that a partition knows nothing about it takes any sequence, so it would take batch 1, and refuse batch 0 when
that comes again: the transaction would have to abort. So until batch 0 is appended, what comes after it has to wait.

Asked only about producers of which the log knows nothing, or no more than that a transaction has ended: of others it
knows which sequence comes next, and a late copy of an old batch, which is refused too, must hold up nobody. Kept for
transactions V1 alone: under V2 the first batch in a partition has sequence 0, and that is checked. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MAX_REFUSED: Final = 10_000
"""The newest are remembered: two megabytes. What is forgotten costs a transaction that could have gone on, no more."""


class RefusedSequences:
    """Partition and producer id -> epoch and sequence."""

    def __init__(self) -> None:
        self._lowest: OrderedDict[tuple[TopicPartition, int], tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lowest)

    def note(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Verification has refused a batch of `producer` that begins with `sequence`."""
        key = where, producer.producer_id
        epoch, lowest = self._lowest.get(key, (producer.epoch, sequence))
        if epoch <= producer.epoch:
            self._lowest[key] = producer.epoch, min(lowest, sequence) if epoch == producer.epoch else sequence
            self._lowest.move_to_end(key)
        if len(self._lowest) > MAX_REFUSED:
            self._lowest.popitem(last=False)

    def check(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that comes after one that was refused."""
        epoch, lowest = self._lowest.get((where, producer.producer_id), (-1, -1))
        if epoch == producer.epoch and sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{producer}: sequence {lowest} was refused and comes first"
            )

    def after_verification(
        self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int, refused: KafkaError | None
    ) -> KafkaError | None:
        """What verification says, and if that is nothing, whether another batch has to come first."""
        if refused is not None:
            self.note(where, producer, sequence)
            return refused
        try:
            self.check(where, producer, sequence)
        except KafkaError as error:
            return error.as_value()
        return None

    def forget(self, where: TopicPartition, producer_id: int) -> None:
        """A batch is appended: from now on the partition knows what comes next."""
        self._lowest.pop((where, producer_id), None)
