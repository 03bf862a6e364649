"""Loads the configuration at startup; the command line takes precedence over environment, file and default.

- Command line: `--set num.partitions=3`.
- Environment: `ONCELOG_NUM_PARTITIONS=3`, the key in capitals with underscores instead of dots. Variables such as
  `KAFKA_NUM_PARTITIONS`, as in Kafka's container image, are also read; an ONCELOG_ variable for the same key takes
  precedence over them. KAFKA_ variables that name no key, such as KAFKA_OPTS, are ignored.
- File: Java properties (`server.properties`), or TOML if the name ends in `.toml`; the names of nested tables are
  joined with dots, so that `[log.retention]` and `hours = 24` set `log.retention.hours`.

An ONCELOG_ variable that names no key is refused if its name resembles a key. Other ONCELOG_ variables are ignored with
a warning, because other programs use this prefix, too: Kubernetes sets variables for each service of a namespace, such
as ONCELOG_PORT for a service `oncelog`.

A key of Kafka that has no effect in oncelog is accepted with a warning (`effectless_keys`).

All invalid settings are reported together, each with key, value, source and the allowed values.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import NO_EFFECT, InvalidConfig, resembles, unknown_key
from oncelog_broker.config.overrides import PREFIX, override_key
from oncelog_broker.config.references import resolved

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

ENVIRONMENT_PREFIX: Final = "ONCELOG_"
KAFKA_ENVIRONMENT_PREFIX: Final = "KAFKA_"
OTHER_VARIABLES: Final = frozenset(
    {
        "ONCELOG_BOOTSTRAP_SERVER",
        "ONCELOG_COMMAND_CONFIG",
        "ONCELOG_CONTAINER_DATA",
        "ONCELOG_FAIL_POINTS",
        "ONCELOG_PROFILE",
        "ONCELOG_PROFILES",
        "ONCELOG_REGISTRY",
        "ONCELOG_ZOOKEEPER_CLASSPATH",
    }
)
"""Variables of other commands, which are not settings of a broker. A broker ignores these variables."""
SERVICE_VARIABLE: Final = re.compile(
    r"ONCELOG(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""The variables that Kubernetes sets for a service whose name begins with `oncelog`."""

MISSPELT: Final = 0.8
"""The minimum similarity for which a variable counts as a misspelt key. For a name in a settings file a lower
similarity is enough, because every name there should be a key.
"""

_NO_ENVIRONMENT: Final[Mapping[str, str]] = {}


class Setting(NamedTuple):
    """The name and text of a setting as written, and its source for messages."""

    name: str
    text: str
    where: str


def load_broker_config(
    file: Path | None = None, environment: Mapping[str, str] | None = None, assignments: Iterable[str] = ()
) -> BrokerConfig:
    """Load `file`, `environment` (os.environ) and `assignments` ("key=value", from --set).

    Raises InvalidConfig with one line for each mistake; OSError if the file cannot be read.
    """
    settings = [] if file is None else file_settings(file.name, file.read_bytes())
    settings += environment_settings(environment or {})
    settings += assignment_settings(assignments)
    return broker_config(settings, environment or {})


def broker_config(settings: Iterable[Setting], environment: Mapping[str, str] = _NO_ENVIRONMENT) -> BrokerConfig:
    """Parse `settings`; a later setting replaces an earlier setting with the same name. `environment` resolves
    `${env:NAME}`. Raises InvalidConfig."""
    static: dict[str, object] = {}
    overrides: dict[str, object] = {}
    mistakes = []
    for setting in {setting.name: setting for setting in settings}.values():
        key = BROKER_KEYS.get(setting.name)
        of_listener = override_key(setting.name) if key is None else None
        try:
            if key is not None:
                static[setting.name] = key.parse(resolved(setting.text, environment))
            elif of_listener is not None:
                overrides[setting.name] = of_listener.parse(resolved(setting.text, environment))
            else:
                _take_without_effect(setting)
        except InvalidConfig as mistake:
            mistakes.append(f"{mistake} (from {setting.where})")
    if mistakes:
        raise InvalidConfig("\n".join(mistakes))
    return BrokerConfig(static, overrides=overrides)


def _take_without_effect(setting: Setting) -> None:
    """Accept a key of Kafka that has no effect in oncelog, and log a warning. Raises InvalidConfig for any other
    key.
    """
    from oncelog_broker.config import effectless_keys

    reason = effectless_keys.reason_to_refuse(setting.name, setting.text)
    if reason is not None:
        raise InvalidConfig(f"Configuration {setting.name} of Apache Kafka's is not supported: {reason}")
    if not effectless_keys.is_effectless(setting.name):
        raise InvalidConfig(unknown_key(setting.name, BROKER_KEYS))
    logger.warning(NO_EFFECT, extra={"key": setting.name, "where": setting.where})


def file_settings(file_name: str, content: bytes) -> list[Setting]:
    """Parse the settings in the content of a file. Raises InvalidConfig if the content is not properties or TOML."""
    try:
        if file_name.endswith(".toml"):
            import tomllib

            texts = dict(_flattened(tomllib.loads(content.decode()), ""))
        else:
            import javaproperties

            texts = javaproperties.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError or InvalidUEscapeError
        raise InvalidConfig(f"{file_name} cannot be read: {error}") from None
    return [Setting(name, text, file_name) for name, text in texts.items()]


def environment_settings(environment: Mapping[str, str]) -> list[Setting]:
    """Return the settings in environment variables. KAFKA_ variables come first, so that ONCELOG_ variables replace
    them.
    """
    settings = []
    for prefix in (KAFKA_ENVIRONMENT_PREFIX, ENVIRONMENT_PREFIX):
        for variable, text in environment.items():
            if variable.startswith(prefix) and variable not in OTHER_VARIABLES:
                name = _name_of(variable.removeprefix(prefix))
                if (
                    name in BROKER_KEYS
                    or name.startswith(PREFIX)
                    or (prefix == ENVIRONMENT_PREFIX and _is_meant(variable))
                ):
                    settings.append(Setting(name, text, f"environment variable {variable}"))
    return settings


def _is_meant(variable: str) -> bool:
    """Whether an ONCELOG_ variable that names no key resembles a key, so that it is refused as misspelt; logs a warning
    for any other variable.
    """
    if not SERVICE_VARIABLE.fullmatch(variable):
        if resembles(_name_of(variable.removeprefix(ENVIRONMENT_PREFIX)), BROKER_KEYS, MISSPELT):
            return True
        logger.warning("environment variable ignored: no broker setting has this name", extra={"variable": variable})
    return False


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an empty environment, for a broker that must not read settings from the environment."""
    prefixes = (ENVIRONMENT_PREFIX, KAFKA_ENVIRONMENT_PREFIX)
    return {
        name: text for name, text in environment.items() if name in OTHER_VARIABLES or not name.startswith(prefixes)
    }


def _name_of(variable: str) -> str:
    """Return the key that an environment variable names: `_` means a dot, `__` an underscore and `___` a dash, as in
    Kafka's container images.
    """
    return variable.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def assignment_settings(assignments: Iterable[str]) -> list[Setting]:
    """Return the settings in `key=value` texts. Raises InvalidConfig for a text without `=`."""
    settings = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidConfig(f"--set expects key=value, not {assignment!r}")
        settings.append(Setting(name.strip(), text, "--set"))
    return settings


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _toml_text(prefix + name, value)


def _toml_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_toml_text(name, item) for item in value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"{name} is a {type(value).__name__}, which is no valid type of a configuration value")
