"""The interfaces between a fast lane (fast path for repeated requests), the dispatcher and a connection, and the switch
that turns lanes off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

VARIABLE: Final = "ONCELOG_FAST_LANES"
"""Environment variable: `off` turns off all fast lanes of this process, so that benchmarks and tests can compare fast
lanes with the handlers.
"""


def are_open(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether fast lanes are on in this process."""
    return environment.get(VARIABLE) != "off"


class UsualWay(Protocol):
    """The parts of the dispatcher that lanes use: its quotas, and its methods for sending responses that the fast lane
    does not build itself.
    """

    throttling: Any
    """Enforces the quotas of clients (`dispatch.throttling`); None while no client has a quota."""

    def respond(self, response: Any, route: Any, context: Any, slot: Any = None, /) -> Any:
        """Encode and send the response to a request. Without a slot, this is done immediately. With a slot, the
        response is encoded in slices of work, and the caller then finishes the slot.
        """

    def wait(
        self, answer: Any, route: Any, context: Any, started: float, slot: Any = None, waiting: float = 0.0, /
    ) -> None:
        """Send the result of the future `answer` when it is done. `started`: when serving the request began; 0 means
        that the request is not timed. `slot`: the slot in which the request has waited since `waiting`; both times are
        monotonic, in seconds.
        """

    def failed(self, error: BaseException, context: Any, /) -> None:
        """Log an error that a handler raised unexpectedly, and close the connection of the request."""


class Lane(Protocol):
    """A fast lane: serves the requests of one API and version on one connection, if they resemble earlier requests."""

    def serve(self, connection: Any, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request. Returns False if the handler must serve the request; in this case the lane has changed
        nothing.
        """

    def learn(self, frame: memoryview, request: Any, response: Any, context: Any, /) -> None:
        """Remember a request that its handler has just served, so that the lane can serve later requests that are
        similar. `response` is None if the response comes later.
        """


MakeLane = Callable[..., Lane]
"""Type of a function that creates a fast lane for one connection from (route, version, services, UsualWay, monotonic
clock).
"""
