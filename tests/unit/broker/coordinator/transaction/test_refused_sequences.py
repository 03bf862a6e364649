"""A batch that verification refused must be appended before later batches of its producer (KAFKA-14561)."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.transaction import refused_sequences as module
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.refused_sequences import RefusedSequences
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdAndEpoch(7, 3)


def test_batches_after_a_refused_sequence_wait() -> None:
    refused = RefusedSequences()
    refused.note(P0, PRODUCER, 4)
    refused.note(P0, PRODUCER, 2)
    refused.note(P0, PRODUCER, 6)
    refused.check(P0, PRODUCER, 2)
    refused.check(P0, PRODUCER, 1)
    with pytest.raises(KafkaError, match="sequence 2 was refused") as caught:
        refused.check(P0, PRODUCER, 4)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    refused.forget(P0, PRODUCER.producer_id)
    refused.check(P0, PRODUCER, 4)
    assert len(refused.lowest) == 0


def test_other_producers_are_not_affected_by_a_refused_sequence() -> None:
    refused = RefusedSequences()
    refused.note(P0, PRODUCER, 0)
    refused.check(P1, PRODUCER, 1)
    refused.check(P0, ProducerIdAndEpoch(8, 3), 1)
    refused.check(P0, ProducerIdAndEpoch(7, 4), 1)
    refused.forget(P1, 7)
    assert len(refused.lowest) == 1


def test_a_later_epoch_begins_anew() -> None:
    refused = RefusedSequences()
    refused.note(P0, PRODUCER, 0)
    refused.note(P0, ProducerIdAndEpoch(7, 4), 5)
    refused.note(P0, PRODUCER, 1)
    refused.check(P0, ProducerIdAndEpoch(7, 4), 5)
    with pytest.raises(KafkaError):
        refused.check(P0, ProducerIdAndEpoch(7, 4), 6)


def test_only_the_newest_refused_sequences_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REFUSED", 2)
    refused = RefusedSequences()
    for producer_id in (1, 2, 1, 3):
        refused.note(P0, ProducerIdAndEpoch(producer_id, 0), 0)
    refused.check(P0, ProducerIdAndEpoch(2, 0), 1)
    for producer_id in (1, 3):
        with pytest.raises(KafkaError):
            refused.check(P0, ProducerIdAndEpoch(producer_id, 0), 1)
