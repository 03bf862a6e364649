"""What of the settings of an entity are its quotas. Values are texts there, as all settings. Pure.

    user and client id   /config/users/<user>/clients/<client>
    user                 /config/users/<user>, beside SCRAM credentials
    client id            /config/clients/<client>
    address              /config/ips/<ip>

In the place of a name `<default>` stands for whoever has none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from oncelog_protocol.quotas import QuotaEntity, QuotaKey, keys_of

Values: TypeAlias = Mapping[QuotaKey, float]
Quotas: TypeAlias = Mapping[QuotaEntity, Values]
"""What was set; an entity without quotas is not in it."""
MAX_NAME_CHARS: Final = 256
"""Limit on the name of a user or client id with quotas of its own; escaping makes up to nine characters of one in the
name of a node."""


def quota_values(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[QuotaKey, float]:
    """The quotas among the settings of an entity. What is no number above 0 limits nothing."""
    given = ((key, _limit(settings.get(key))) for key in keys_of(entity))
    return {key: value for key, value in given if value is not None}


def unreadable_quotas(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[QuotaKey, str]:
    """Return the quotas of an entity whose stored value is not a number above 0, with that value."""
    given = ((key, settings.get(key)) for key in keys_of(entity))
    return {key: text for key, text in given if text is not None and _limit(text) is None}


def _limit(text: str | None) -> float | None:
    try:
        value = 0.0 if text is None else float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None
