"""Remembers the lowest sequence that verification has refused, so that later batches do not overtake it (KAFKA-14561).

A producer sends batch 0 and batch 1; the coordinator cannot be reached for the first one and can for the second. A
partition accepts any first sequence of a producer that it does not know. It would append batch 1 and then refuse batch
0 when that is sent again, and the transaction would have to abort. So until batch 0 is appended, later batches are
refused, too.

Used only for producers whose last batch the log does not know, or of which it knows only that a transaction has ended.
For all others the log knows the next sequence, and a late copy of an old batch, which verification also refuses, must
not hold up new ones. Used for transactions V1 only: under V2 the log checks that the first batch has sequence 0. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MAX_REFUSED: Final = 10_000
"""Entries kept, the newest ones: two megabytes. Without its entry a transaction may have to abort, no more."""


class RefusedSequences:
    """(Partition, producer id) -> (epoch, lowest refused sequence)."""

    def __init__(self) -> None:
        self.lowest: OrderedDict[tuple[TopicPartition, int], tuple[int, int]] = OrderedDict()
        """Nearly always empty: who would look something up asks that first."""

    def note(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Remember that verification has refused a batch of `producer` that begins with `sequence`."""
        key = where, producer.producer_id
        epoch, lowest = self.lowest.get(key, (producer.epoch, sequence))
        if epoch <= producer.epoch:
            self.lowest[key] = producer.epoch, min(lowest, sequence) if epoch == producer.epoch else sequence
            self.lowest.move_to_end(key)
        if len(self.lowest) > MAX_REFUSED:
            self.lowest.popitem(last=False)

    def check(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that follows a refused one."""
        epoch, lowest = self.lowest.get((where, producer.producer_id), (-1, -1))
        if epoch == producer.epoch and sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{producer}: sequence {lowest} was refused and must be sent again first",
            )

    def after_verification(
        self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int, refused: KafkaError | None
    ) -> KafkaError | None:
        """Returns the error of verification, else an error if another batch must be sent first, else None."""
        if refused is not None:
            self.note(where, producer, sequence)
            return refused
        try:
            self.check(where, producer, sequence)
        except KafkaError as error:
            return error.as_value()
        return None

    def forget(self, where: TopicPartition, producer_id: int) -> None:
        """Forget the entry: a batch is appended, so the log knows the next sequence."""
        self.lowest.pop((where, producer_id), None)
