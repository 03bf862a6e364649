"""Resolves the effective settings of one listener and one of its SASL mechanisms: first the value that is set for the
mechanism (`overrides`), then the value for the listener, then the value of the broker's key.
"""

from __future__ import annotations

from typing import Any, TypeVar

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import ConfigKey
from oncelog_broker.config.overrides import PREFIX

T = TypeVar("T")


class ListenerConfig:
    """The settings of one listener, and of one SASL mechanism if `mechanism` is given: `settings[SSL_CLIENT_AUTH]` is
    the effective value."""

    def __init__(self, config: BrokerConfig, listener: str, mechanism: str | None = None) -> None:
        self._config = config
        self.listener = listener
        self._prefixes = [f"{PREFIX}{listener.lower()}."]
        if mechanism is not None:
            self._prefixes.insert(0, f"{self._prefixes[0]}{mechanism.lower()}.")

    def name_of(self, key: ConfigKey[Any]) -> str:
        """Return the full name of the setting that has the effective value, for error messages."""
        names = [prefix + key.name for prefix in self._prefixes]
        return next((name for name in names if name in self._config.overrides), key.name)

    def __getitem__(self, key: ConfigKey[T]) -> T:
        value: T = self._config.overrides.get(self.name_of(key), self._config[key])
        return value

    def with_mechanism(self, mechanism: str) -> ListenerConfig:
        return ListenerConfig(self._config, self.listener, mechanism)
