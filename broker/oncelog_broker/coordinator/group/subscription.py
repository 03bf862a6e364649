"""Parses the topics in the subscription of a consumer group member (ConsumerProtocolSubscription).

    Layout: int16 version, array of topic names, nullable bytes of user data, then fields of later versions.

Clients write the subscription, so its bytes may be malformed; the topics are then unknown. Pure.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of the subscription; None if the bytes are malformed."""
    if len(subscription) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(subscription)
    if version < 0 or count < 0:
        return None
    topics = set()
    position = _HEAD.size
    for _ in range(count):
        start = position + _LENGTH.size
        if start > len(subscription):
            return None
        (size,) = _LENGTH.unpack_from(subscription, position)
        position = start + size
        if size < 0 or position > len(subscription):
            return None
        try:
            topics.add(subscription[start:position].decode())
        except UnicodeDecodeError:
            return None
    return frozenset(topics)
