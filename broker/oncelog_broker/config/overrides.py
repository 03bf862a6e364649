"""Settings of one listener: `listener.name.<name>.<key>`, or of one of its mechanisms, `...<name>.<mechanism>.<key>`.

A value is looked for there first, the mechanism's before the listener's, then under the key itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog_broker.config.declared import ConfigKey
from oncelog_broker.config.security_keys import MECHANISMS, OF_LISTENERS, OF_MECHANISMS

if TYPE_CHECKING:
    from oncelog_broker.config.broker_config import BrokerConfig

T = TypeVar("T")

PREFIX: Final = "listener.name."


def override_key(name: str) -> ConfigKey[Any] | None:
    """The key of a setting of one listener, under its whole name; None if `name` is none."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name[len(PREFIX) :].partition(".")
    if not listener or listener != listener.lower():
        return None
    key = OF_LISTENERS.get(rest)
    mechanism, _, of_mechanism = rest.partition(".")
    if key is None and mechanism.upper() in MECHANISMS and mechanism == mechanism.lower():
        key = OF_MECHANISMS.get(of_mechanism)
    return None if key is None else replace(key, name=name)


class ListenerConfig:
    """`of_listener[SSL_CLIENT_AUTH]` is what holds for one listener, and one of its mechanisms."""

    def __init__(self, config: BrokerConfig, listener: str, mechanism: str | None = None) -> None:
        self._config = config
        self.listener = listener
        self._prefixes = [f"{PREFIX}{listener.lower()}."]
        if mechanism is not None:
            self._prefixes.insert(0, f"{self._prefixes[0]}{mechanism.lower()}.")

    def name_of(self, key: ConfigKey[Any]) -> str:
        """Under which name the value that holds was given; for messages."""
        names = [prefix + key.name for prefix in self._prefixes]
        return next((name for name in names if name in self._config.overrides), key.name)

    def __getitem__(self, key: ConfigKey[T]) -> T:
        value: T = self._config.overrides.get(self.name_of(key), self._config[key])
        return value

    def with_mechanism(self, mechanism: str) -> ListenerConfig:
        return ListenerConfig(self._config, self.listener, mechanism)
