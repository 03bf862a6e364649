"""The configuration of one broker: typed values with their sources.

A `BrokerConfig` is immutable. A dynamic change creates a new `BrokerConfig` (`with_dynamic`), so that a user of a
`BrokerConfig` sees a consistent state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from oncelog_broker.config.broker_keys import BROKER_ID, BROKER_KEYS, LOG_DIR, LOG_DIRS, NODE_ID
from oncelog_broker.config.declared import ConfigKey, ConfigSource, InvalidConfig, unknown_key
from oncelog_broker.config.overrides import override_key

T = TypeVar("T")

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class BrokerConfig:
    """The settings of one broker. `config[NUM_PARTITIONS]` is the effective value; `settings(key)` yields all given
    values, beginning with the effective value."""

    __slots__ = ("_layers", "_values", "overrides")

    def __init__(
        self,
        static: Mapping[str, object] = _NOTHING,
        *,
        dynamic: Mapping[str, object] = _NOTHING,
        dynamic_default: Mapping[str, object] = _NOTHING,
        overrides: Mapping[str, Any] = _NOTHING,
    ) -> None:
        """All arguments are typed values by key name: `static` are the startup settings, `dynamic` the dynamic settings
        of this broker, `dynamic_default` the dynamic settings of all brokers. `overrides` are the settings of single
        listeners; the key is the full name (`listener.name.<name>.<key>`).
        """
        self.overrides = overrides
        self._layers: tuple[tuple[ConfigSource, Mapping[str, object]], ...] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, static),
        )
        self._values: dict[str, object] = {name: key.default for name, key in BROKER_KEYS.items()}
        for layer in (static, dynamic_default, dynamic):
            unknown = layer.keys() - BROKER_KEYS.keys()
            assert not unknown, f"not keys of a broker: {unknown}"
            self._values.update(layer)

    @classmethod
    def of(cls, texts: Mapping[str, str] = MappingProxyType({})) -> BrokerConfig:
        """Parse static settings. Raises InvalidConfig."""
        static: dict[str, object] = {}
        overrides: dict[str, object] = {}
        for name, text in texts.items():
            key = BROKER_KEYS.get(name)
            of_listener = override_key(name) if key is None else None
            if key is not None:
                static[name] = key.parse(text)
            elif of_listener is not None:
                overrides[name] = of_listener.parse(text)
            else:
                raise InvalidConfig(unknown_key(name, BROKER_KEYS))
        return cls(static, overrides=overrides)

    def __getitem__(self, key: ConfigKey[T]) -> T:
        return cast(T, self._values[key.name])

    def with_dynamic(self, dynamic: Mapping[str, object], dynamic_default: Mapping[str, object]) -> BrokerConfig:
        """Return a configuration with the same startup settings and these dynamic settings (typed values)."""
        static = self._layers[-1][1]
        return BrokerConfig(static, dynamic=dynamic, dynamic_default=dynamic_default, overrides=self.overrides)

    def settings(self, key: ConfigKey[Any]) -> Iterator[tuple[ConfigSource, object]]:
        """Yield every given value of `key` with its source: first the effective value, last the default if the key has
        a default.
        """
        for source, layer in self._layers:
            if key.name in layer:
                yield source, layer[key.name]
        if key.default is not None:
            yield ConfigSource.DEFAULT_CONFIG, key.default

    def is_set(self, key: ConfigKey[Any]) -> bool:
        """Whether a value other than the default is set for `key`."""
        return any(key.name in layer for _, layer in self._layers)

    @property
    def node_id(self) -> int:
        """The value of `node.id`, or of `broker.id` if only `broker.id` is set."""
        broker_id = self[BROKER_ID]
        return broker_id if broker_id is not None and not self.is_set(NODE_ID) else self[NODE_ID]

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The value of `log.dirs`, or of `log.dir` if `log.dirs` is not set."""
        return self[LOG_DIRS] or self[LOG_DIR]
