"""Lists all known differences, by area. Each difference is an entry of a row in docs/differences.md, which says why the
difference remains.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.known import (
    admin,
    consumer_groups,
    everywhere,
    groups,
    obliging,
    pending,
    producing,
    reading,
    security,
    shares,
    streams,
    transactions,
)
from tests.interop.differential.register import Known

STAYING: Final[tuple[Known, ...]] = (
    *everywhere.KNOWN,
    *producing.KNOWN,
    *reading.KNOWN,
    *transactions.KNOWN,
    *groups.KNOWN,
    *consumer_groups.KNOWN,
    *admin.KNOWN,
    *security.KNOWN,
    *shares.KNOWN,
    *streams.KNOWN,
)
KNOWN: Final[tuple[Known, ...]] = (*STAYING, *pending.PENDING)

OPTIONAL: Final = tuple(entry for entry in KNOWN if entry.setting)
"""Differences that disappear with a setting of oncelog's broker."""
OBLIGING: Final = dict(entry.setting.split("=") for entry in OPTIONAL)
"""All settings of oncelog's broker with which a difference disappears."""
OBLIGED: Final[tuple[Known, ...]] = obliging.KNOWN
"""Differences that appear only with all of these settings."""
