"""A reader that names the leader epoch of its last record learns where its log diverges from the leader's (KIP-595)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.storage import make_batch, open_log

from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError

ACKS_ALL = -1


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A partition with records 0 to 2 of epoch 0, and 3 and 4 of epoch 3; epoch 5 has no record yet."""
    made = Partition("orders", bytes(16), 0, open_log(tmp_path / "orders-0"), broker_id=1)
    for epoch, count in ((0, 3), (3, 2), (5, 0)):
        made.lead(epoch, (1,))
        for _ in range(count):
            made.append(memoryview(make_batch()), required_acks=ACKS_ALL)
    yield made
    made.log.close()


@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (3, 0, None),
        (4, 0, (0, 3)),  # the reader has a record of epoch 0 at an offset at which the leader has one of epoch 3
        (50, 0, (0, 3)),
        (2, 1, (0, 3)),  # no leader epoch 1 ever existed
        (5, 3, None),
        (6, 3, (3, 5)),
        (5, 4, (3, 5)),
        (5, 5, None),
        (50, -1, None),  # the reader names no leader epoch
    ],
)
def test_the_offset_of_divergence_is_found(
    partition: Partition, offset: int, epoch: int, answer: tuple[int, int] | None
) -> None:
    assert partition.divergence(offset, epoch) == answer


def test_an_unknown_epoch_has_no_end_offset(partition: Partition) -> None:
    with pytest.raises(KafkaError) as refused:
        partition.divergence(0, 6)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
