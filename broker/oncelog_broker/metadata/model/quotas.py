"""Finds the quotas among the settings of an entity. The values are strings, like all settings.

- The quotas of a user and client id are in the node `/config/users/<user>/clients/<client>`.
- The quotas of a user are in the node `/config/users/<user>`, together with SCRAM credentials.
- The quotas of a client id are in the node `/config/clients/<client>`.
- The quotas of an address are in the node `/config/ips/<ip>`.

The name `<default>` stands for all entities without quotas of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from oncelog_protocol.quotas import QuotaEntity, QuotaKey, keys_of

Values: TypeAlias = Mapping[QuotaKey, float]
Quotas: TypeAlias = Mapping[QuotaEntity, Values]
"""The configured quotas; an entity without quotas has no entry."""
MAX_NAME_CHARS: Final = 256
"""Maximum length of the name of a user or client id that may have its own quotas; the limit is needed because escaping
for a node name may turn one character into nine.
"""


def quota_values(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[QuotaKey, float]:
    """Return the quotas among the settings of an entity. A value that is not a number above 0 sets no limit."""
    given = ((key, _limit(settings.get(key))) for key in keys_of(entity))
    return {key: value for key, value in given if value is not None}


def unreadable_quotas(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[QuotaKey, str]:
    """Return the invalid quotas of an entity, with their stored values: values that are not a number above 0."""
    given = ((key, settings.get(key)) for key in keys_of(entity))
    return {key: text for key, text in given if text is not None and _limit(text) is None}


def _limit(text: str | None) -> float | None:
    try:
        value = 0.0 if text is None else float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None
