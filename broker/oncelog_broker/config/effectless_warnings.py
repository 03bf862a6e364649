"""Names in the log, once for each key, what is set of Kafka's keys and changes nothing here."""

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
    """Of one broker process. At most one line for each key of Kafka's, however many topics set it."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def of_topic(self, names: Iterable[str]) -> None:
        """A topic has settings of these names."""
        self._warn("topic", [name for name in names if name in _OF_TOPICS])

    def of_broker(self, names: Iterable[str]) -> None:
        """This broker, or all brokers, have dynamic settings of these names."""
        unread = [name for name in names if name not in BROKER_KEYS]
        if unread:
            from oncelog_broker.config.effectless_keys import is_effectless

            self._warn("broker", [name for name in unread if is_effectless(name)])

    def _warn(self, resource: str, names: list[str]) -> None:
        for name in names:
            if name not in self._named:
                self._named.add(name)
                logger.warning(NO_EFFECT, extra={"key": name, "resource": resource})
