"""Declares broker keys that a group may override within bounds; the minimum and the maximum are also broker keys."""

from __future__ import annotations

from oncelog_broker.config.declared import ConfigKey, ConfigType, at_least
from oncelog_protocol.light_classes import NamedTuple


class Bounded(NamedTuple):
    """Three broker keys: the value for groups without an override, and the minimum and the maximum of a group's
    override.
    """

    key: ConfigKey[int]
    least: ConfigKey[int]
    most: ConfigKey[int]


def bounded(protocol: str, name: str, default: int, least: int, most: int, doc: str, minimum: int = 1) -> Bounded:
    """Declare the keys `group.PROTOCOL.NAME`, `group.PROTOCOL.min.NAME` and `group.PROTOCOL.max.NAME` with these
    defaults. `minimum` is the lowest valid value of all three keys."""

    def key(prefix: str, value: int, text: str) -> ConfigKey[int]:
        return ConfigKey[int](f"group.{protocol}.{prefix}{name}", ConfigType.INT, value, text, at_least(minimum))

    return Bounded(
        key("", default, doc),
        key("min.", least, f"The smallest allowed value of a group's {protocol}.{name}."),
        key("max.", most, f"The largest allowed value of a group's {protocol}.{name}."),
    )
