"""Parses the names of settings for one listener, `listener.name.<name>.<key>`, or for one of the listener's SASL
mechanisms, `listener.name.<name>.<mechanism>.<key>`. `listener_config` resolves the effective value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog_broker.config.declared import ConfigKey
from oncelog_broker.config.security_keys import MECHANISMS, OF_LISTENERS, OF_MECHANISMS

PREFIX: Final = "listener.name."


def override_key(name: str) -> ConfigKey[Any] | None:
    """Return the key of a setting for a listener, declared with its full name; None if `name` is not the name of such a
    setting.
    """
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
