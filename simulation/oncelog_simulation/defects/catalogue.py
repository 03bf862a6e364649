"""Lists all seeded defects by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_simulation.defects import (
    clients,
    control,
    files,
    fixed_bugs,
    found_later,
    groups,
    lanes,
    logs,
    replication,
    scenes,
    shares,
    streams,
    transactions,
)
from oncelog_simulation.defects.defect import Defect

DEFECTS: Final[Mapping[str, Defect]] = {
    defect.name: defect if defect.faults is not None else defect._replace(faults=room.FAULTS)
    for room in (
        *(replication, logs, files, transactions, groups, shares, streams, control, clients, lanes, fixed_bugs, scenes),
        found_later,
    )
    for defect in room.DEFECTS
}
