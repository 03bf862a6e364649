"""Logs a warning for each of Kafka's keys that is set and has no effect in oncelog; each key causes one warning."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import NO_EFFECT
from oncelog_broker.config.inert_topic_keys import INERT_TOPIC_KEYS

logger = logging.getLogger(__name__)

_OF_TOPICS: Final = frozenset(key.name for key in INERT_TOPIC_KEYS)


class EffectlessWarnings:
    """Logs the warnings of one broker process: at most one line for each key, however many topics set the key."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def of_topic(self, names: Iterable[str]) -> None:
        """Log a warning for each key without effect in the settings of a topic."""
        self._warn("topic", [name for name in names if name in _OF_TOPICS])

    def of_broker(self, names: Iterable[str]) -> None:
        """Log a warning for each key without effect in the dynamic settings of this broker or of all brokers."""
        unread = [name for name in names if name not in BROKER_KEYS]
        if unread:
            from oncelog_broker.config.effectless_keys import is_effectless

            self._warn("broker", [name for name in unread if is_effectless(name)])

    def _warn(self, resource: str, names: list[str]) -> None:
        for name in names:
            if name not in self._named:
                self._named.add(name)
                logger.warning(NO_EFFECT, extra={"key": name, "resource": resource})
