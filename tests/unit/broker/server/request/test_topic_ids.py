"""Requests may name topics only by id (T9)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.handlers import image_with, topic_id

from oncelog_broker.server.request.topic_ids import resolve_names


@dataclass
class Topic:
    topic_id: bytes
    name: str = ""


def test_ids_that_are_known_get_their_names() -> None:
    orders, unknown, none = Topic(topic_id("orders")), Topic(b"x" * 16), Topic(bytes(16))
    assert resolve_names([unknown, orders, none], image_with("orders")) == ([orders], [unknown, none])
    assert (orders.name, unknown.name) == ("orders", "")
