"""Names of settings of one listener: `listener.name.<name>.<key>`, or of one of its mechanisms,
`...<name>.<mechanism>.<key>`. `listener_config` says which of the values holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog_broker.config.declared import ConfigKey
from oncelog_broker.config.security_keys import MECHANISMS, OF_LISTENERS, OF_MECHANISMS

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
