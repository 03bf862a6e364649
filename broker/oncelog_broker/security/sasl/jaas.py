"""Parses the setting `sasl.jaas.config` of a listener's mechanism; the setting contains the users of PLAIN, and this
broker's own login.
"""

from __future__ import annotations

from typing import Final

from oncelog.jaas import jaas_options
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.secret import Secret

USER_PREFIX: Final = "user_"


def parse_jaas(name: str, secret: Secret) -> dict[str, str]:
    """Return the options. Raises InvalidConfig, whose message contains the key's `name` but not its value."""
    try:
        return jaas_options(secret.reveal())
    except ValueError as error:
        raise InvalidConfig(f"{name}: {error}") from None


def plain_users(options: dict[str, str]) -> dict[str, Secret]:
    """Return the users in the options of PLAIN."""
    return {
        name.removeprefix(USER_PREFIX): Secret(value)
        for name, value in options.items()
        if name.startswith(USER_PREFIX) and name != USER_PREFIX
    }
