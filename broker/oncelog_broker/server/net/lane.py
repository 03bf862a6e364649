"""What a fast lane is to the dispatcher and to a connection, and whether there are any."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

VARIABLE: Final = "ONCELOG_FAST_LANES"
"""`off` closes all lanes of this process: benchmarks and tests compare the two ways."""


def are_open(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether requests may take lanes."""
    return environment.get(VARIABLE) != "off"


class UsualWay(Protocol):
    """What lanes use of the dispatcher: its quotas, and its ways for answers that they do not know."""

    throttling: Any
    """Enforces the quotas of clients (`dispatch.throttling`); None while there are no quotas."""

    def respond(self, response: Any, route: Any, context: Any, slot: Any = None, /) -> Any:
        """Encode and send the answer to a request, at once; with a slot in slices, and the caller finishes the slot."""

    def wait(
        self, answer: Any, route: Any, context: Any, started: float, slot: Any = None, waiting: float = 0.0, /
    ) -> None:
        """Send `answer`, a future, when it comes. `started`: when the request began to be served, 0 if its time is not
        taken. `slot`: where the request waits already, since `waiting`; both times are monotonic, in seconds."""

    def failed(self, error: BaseException, context: Any, /) -> None:
        """Log an error that no handler should raise, and close the connection of the request."""


class Lane(Protocol):
    """Serves the requests of one API and version on one connection, if they are as those before."""

    def serve(self, connection: Any, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request; False: nothing has been done, and it takes the usual way."""

    def learn(self, frame: memoryview, request: Any, response: Any, context: Any, /) -> None:
        """Take note of a request that was just served in the usual way. `response` is None where it comes later."""


MakeLane = Callable[..., Lane]
"""(route, version, services, usual way, monotonic clock) -> a lane for one connection."""
