"""Clients may not write to internal topics, whichever broker receives the request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import Client, Served, produce
from tests.support.storage import make_batch

from oncelog_broker.metadata.model.image import ClusterImage, Topic
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A broker that leads no partition."""

    def not_here(*_: object) -> Any:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    made = Served(tmp_path)
    monkeypatch.setattr(made, "led_by_name", not_here)
    monkeypatch.setattr(made, "led_by_id", not_here)
    yield made
    made.leave()


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__transaction_state", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_internal_topics_are_created_by_a_broker_that_does_not_lead_them(
    served: Served, topic: str, code: ErrorCode, version: int
) -> None:
    """As in Kafka, the broker first checks whether the topic is internal, and then whether it leads the partition,
    because a client would otherwise search for the leader in vain.
    """
    served.services.image = ClusterImage("").with_topic(Topic(topic, TOPIC_ID, {}))
    request = produce(bytes(make_batch()))
    request.topic_data[0].name, request.topic_data[0].topic_id = topic, TOPIC_ID
    client = Client(served)
    client.send(request, version=version)
    ((_, response),) = client.answers()
    assert response.responses[0].partition_responses[0].error_code == code
