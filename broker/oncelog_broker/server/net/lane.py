"""What a fast lane is to the dispatcher and to a connection, and whether there are any."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from oncelog.fail_points import point

VARIABLE: Final = "ONCELOG_FAST_LANES"
"""`off` closes all lanes of this process: benchmarks and tests compare the two ways."""


def are_open(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether requests may take lanes. Not where faults are armed: they strike in the usual way."""
    return point.ACTIVE_FAULTS is None and environment.get(VARIABLE) != "off"


class Lane(Protocol):
    """Serves the requests of one API and version on one connection, if they are as those before."""

    def serve(self, connection: Any, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request; False: nothing has been done, and it takes the usual way."""

    def learn(self, frame: memoryview, request: Any, response: Any, context: Any, /) -> None:
        """Take note of a request that was just served in the usual way, and answered at once."""


MakeLane = Callable[..., Lane]
"""(route, version, services, respond, monotonic clock) -> a lane for one connection."""
