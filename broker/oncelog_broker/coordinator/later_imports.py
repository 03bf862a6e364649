"""Imports the coordinators, and compaction, in short steps: soon after the broker listens, or before the first request
that needs a coordinator.

A broker imports none of them before it listens. All their modules together would stop the event loop for up to a
tenth of a second; one step takes a few milliseconds, and other work runs between two steps.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Final

from oncelog_broker.runtime.steps import Steps

FIRST_SECONDS: Final = 0.5
"""Seconds after the broker is ready until the first of these imports, because a test sends its first requests then."""
PAUSE_SECONDS: Final = 0.01
"""Seconds between two imports."""
MODULES_OF_AN_IMPORT: Final = 15
"""The maximum number of modules that one of these imports may load, with all that it imports."""
_OF_COORDINATORS: Final = (
    "group.classic_group",
    "group.consumer_records",
    "group.records",
    "group.membership",
    "group.consumer.epochs",
    "group.streams.endpoints",
    "group.transactional_offsets",
    "group.consumer.regexes",
    "group.consumer.target",
    "group.consumer.classic_members",
    "group.offset_removal",
    "group.share.heartbeat",
    "group.streams.heartbeat_answer",
    "group.machine",
    "runtime",
    "share.share_state_machine",
    "share.share_state_calls",
    "transaction.records",
    "transaction.marker_queue",
    "transaction.coordinator",
)
LATER: Final = (
    "oncelog_broker.log.compaction.compaction",
    *(f"oncelog_broker.coordinator.{name}" for name in _OF_COORDINATORS),
    "oncelog_broker.sharing.acknowledgement",
    "oncelog_broker.sharing.share_partitions",
    "oncelog_broker.assembly.running_coordinators",
)
"""The modules to import, in this order. Each loads at most MODULES_OF_AN_IMPORT modules."""


def import_steps() -> Steps[None]:
    """Import the modules of LATER one by one."""
    for name in LATER:
        if name not in sys.modules:
            import_module(name)
            yield None


async def import_later() -> None:
    """Import the modules of LATER one by one, with pauses, soon after the broker listens."""
    await asyncio.sleep(FIRST_SECONDS)
    for _ in import_steps():
        await asyncio.sleep(PAUSE_SECONDS)
