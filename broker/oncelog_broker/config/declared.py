"""The class of a configuration key, with name, type, default, allowed values and meaning, and the conversion between
text and typed value.

`ConfigKey` is a generic class with the type of the value as parameter, so that the type checker knows that
`config[NUM_PARTITIONS]` is an int. Small classes in this module are named tuples, because each start of the broker
creates these classes, and creating a dataclass takes eight times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, Generic, TypeVar, cast

from oncelog_broker.config.secret import HIDDEN, Secret
from oncelog_protocol.light_classes import NamedTuple, dataclass

T_co = TypeVar("T_co", covariant=True)

NO_EFFECT: Final = "a key of Apache Kafka's was set that changes nothing here"
"""The log message about a key of Kafka that is set but has no effect in oncelog."""
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """Kafka's types of values, with the codes of DescribeConfigs (v3 and later)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value, with the codes of DescribeConfigs. If a key has several values, the value whose source has
    the smallest code takes precedence; this applies to the codes up to DEFAULT_CONFIG. Settings of loggers, client
    metrics and groups have their own codes, without such an order.
    """

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class UpdateMode(IntEnum):
    """Whether a value can change while the broker runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class InvalidConfig(ValueError):
    """A key or value is invalid. The message names key, value and the allowed values."""


def unknown_key(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown key, with the most similar known key."""
    near = resembles(name, known)
    return f"Unknown configuration {name}" + (f": did you mean {near}?" if near else "")


def resembles(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known key that is most similar to `name`; None if no key is similar. `likeness` is the minimum
    similarity from 0 to 1, as in difflib.
    """
    from difflib import get_close_matches  # imported late: only misspelt keys need difflib

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=likeness)), None)


class Allowed(NamedTuple):
    """A restriction of the values of a key in addition to its type: a check, and the description of the check, such as
    "at least 1"."""

    words: str
    check: Callable[[object], bool]


def at_least(minimum: float) -> Allowed:
    return Allowed(f"at least {minimum}", lambda value: cast(float, value) >= minimum)


def between(minimum: float, maximum: float) -> Allowed:
    return Allowed(f"between {minimum} and {maximum}", lambda value: minimum <= cast(float, value) <= maximum)


def one_of(*choices: str) -> Allowed:
    return Allowed("one of " + ", ".join(choices), lambda value: value in choices)


def each_of(*choices: str) -> Allowed:
    """Allows lists whose elements are all among `choices`, including the empty list."""

    def check(value: object) -> bool:
        return all(item in choices for item in cast(tuple[str, ...], value))

    return Allowed("any of " + ", ".join(choices), check)


def not_empty() -> Allowed:
    return Allowed("not empty", bool)


ANYTHING: Final = Allowed("", lambda _: True)

_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_TYPE_WORDS: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a 16-bit integer",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.LONG: "a 64-bit integer",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a comma-separated list",
}


# The class has no slots, because Python 3.11 does not support slots together with frozen and Generic.
@dataclass(frozen=True, eq=False)
class ConfigKey(Generic[T_co]):
    """A configuration key. A `default` of None means that the key is not set. A value of type LIST is a tuple of
    strings; a value of type PASSWORD is a `Secret`.
    """

    name: str
    type: ConfigType
    default: T_co
    doc: str
    allowed: Allowed = ANYTHING
    importance: Importance = Importance.MEDIUM
    update_mode: UpdateMode = UpdateMode.READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown (DescribeConfigs, logs, error messages)."""
        return self.type is ConfigType.PASSWORD

    @property
    def expected(self) -> str:
        """A description of the allowed values, for error messages."""
        return ", ".join(filter(None, (_TYPE_WORDS.get(self.type, "a string"), self.allowed.words)))

    def parse(self, text: str) -> T_co:
        """Parse `text`. Raises InvalidConfig with key, value and the allowed values."""
        text = text.strip()
        try:
            value = _parse(self.type, text)
        except ValueError:
            value = None
        if value is None or not self.allowed.check(value):
            shown = HIDDEN if self.is_sensitive else repr(text)
            raise InvalidConfig(f"Invalid value {shown} for configuration {self.name}: expected {self.expected}")
        return cast(T_co, value)

    def format(self, value: object) -> str | None:
        """Return `value` in the text form of DescribeConfigs; None for an unset or sensitive value."""
        if value is None or self.is_sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def _parse(config_type: ConfigType, text: str) -> object:
    """Parse text to a value of the key's type; returns None or raises ValueError for text that does not have this
    type."""
    if config_type is ConfigType.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if "_" in text and config_type in (*_INTEGER_BITS, ConfigType.DOUBLE):
        return None  # Python's int() accepts 1_000, but Kafka does not
    if config_type in _INTEGER_BITS:
        number = int(text)
        limit = 1 << (_INTEGER_BITS[config_type] - 1)
        return number if -limit <= number < limit else None
    if config_type is ConfigType.DOUBLE:
        return float(text)
    if config_type is ConfigType.LIST:
        return tuple(item for item in (part.strip() for part in text.split(",")) if item)
    return Secret(text) if config_type is ConfigType.PASSWORD else text
