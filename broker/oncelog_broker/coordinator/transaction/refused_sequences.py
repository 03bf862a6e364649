"""Remembers the lowest sequence number of a batch that the broker has refused because it could not verify the batch's
transaction. The broker then refuses later batches until that batch is appended (KAFKA-14561).

Example: a producer sends batch 0 and batch 1. The coordinator is unreachable when batch 0 is verified, and reachable
when batch 1 is verified. A partition accepts any first sequence of an unknown producer. Without the rule of this
module, the partition would therefore append batch 1. When the producer sends batch 0 again, the partition would refuse
it, and the transaction would have to abort. With the rule, the partition refuses batch 1 and all later batches until
batch 0 is appended.

The rule applies only to producers whose last batch is not in the log's producer state. For all other producers the log
already checks the next sequence. If the rule applied to them, a late copy of an old batch would delay new batches. The
rule applies to transactions V1 only: under V2 the log checks that the first batch has sequence 0. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MAX_REFUSED: Final = 10_000
"""Maximum number of entries, which take two megabytes; the oldest entries are dropped first. The only effect of a
dropped entry is that a transaction may have to abort.
"""


class RefusedSequences:
    """(Partition, producer id) -> (epoch, lowest refused sequence)."""

    def __init__(self) -> None:
        self.lowest: OrderedDict[tuple[TopicPartition, int], tuple[int, int]] = OrderedDict()
        """The mapping is nearly always empty, so callers first check whether it is empty."""

    def note(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Store that a batch of `producer` with the first sequence number `sequence` was refused, because its
        transaction could not be verified."""
        key = where, producer.producer_id
        epoch, lowest = self.lowest.get(key, (producer.epoch, sequence))
        if epoch <= producer.epoch:
            self.lowest[key] = producer.epoch, min(lowest, sequence) if epoch == producer.epoch else sequence
            self.lowest.move_to_end(key)
        if len(self.lowest) > MAX_REFUSED:
            self.lowest.popitem(last=False)

    def check(self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that follows a refused batch."""
        epoch, lowest = self.lowest.get((where, producer.producer_id), (-1, -1))
        if epoch == producer.epoch and sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{producer}: sequence {lowest} was refused and must be sent again first",
            )

    def after_verification(
        self, where: TopicPartition, producer: ProducerIdAndEpoch, sequence: int, refused: KafkaError | None
    ) -> KafkaError | None:
        """Returns the verification error `refused` if there is one. If `refused` is None, returns an error if another
        batch must be sent first, otherwise None.
        """
        if refused is not None:
            self.note(where, producer, sequence)
            return refused
        try:
            self.check(where, producer, sequence)
        except KafkaError as error:
            return error.as_value()
        return None

    def forget(self, where: TopicPartition, producer_id: int) -> None:
        """Remove the entry of a producer after its batch was appended, because the log now knows the next sequence."""
        self.lowest.pop((where, producer_id), None)
