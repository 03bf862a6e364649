"""A producer id, with the epoch that distinguishes the sessions of its producer."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_EPOCH: Final = 2**15 - 1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch, as InitProducerId returns them and as each batch of the producer contains them."""

    producer_id: int
    epoch: int

    @property
    def is_last(self) -> bool:
        """Whether the epochs are used up, so that the next session needs a new producer id (S27)."""
        return self.epoch >= MAX_EPOCH

    def bumped(self) -> ProducerIdAndEpoch:
        """Return the next epoch of the same producer id."""
        assert not self.is_last, "the epochs are used up"
        return ProducerIdAndEpoch(self.producer_id, self.epoch + 1)

    def __str__(self) -> str:
        return f"producer id {self.producer_id} epoch {self.epoch}"


NO_IDENTITY: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
