"""Parts that lanes share: the limit of attempts to remember a request, the checks of rights and quotas, the timing of
requests, and the bytes of a response that only differs in its correlation id.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.server.dispatch.routes import Route
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.lane import UsualWay
from oncelog_protocol.codec import codec

RightsNeeded = tuple[tuple[int, str | None], ...]
"""The rights that a request needs, each as the kind and the name of an ACL rule."""
HEAD: Final = Struct(">ii")
"""The size and the correlation id of a response."""

MAX_FAILED_ATTEMPTS: Final = 8
"""After this number of failed attempts in a row, a lane remembers no further request. An attempt fails if the
lane could not recognise such requests, for example because our encoder does not reproduce the client's encoding. An
attempt costs more than the handler, so a client with its own encoding must not pay for an attempt at each request.
"""


class Attempts:
    """Decides whether a lane attempts to remember a request. The lane reports each failed and each successful
    attempt.
    """

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: int | None = None
        """The number of failed attempts since the last success; None before the first request that the lane could
        remember.
        """

    def may_begin(self) -> bool:
        """Return whether the lane may attempt to remember this request. The first request that the lane could remember
        is left out, because many connections send only one.
        """
        if self._failed is None:
            self._failed = 0
            return False
        return self._failed < MAX_FAILED_ATTEMPTS

    def failed(self) -> None:
        """Count an attempt that failed."""
        self._failed = (self._failed or 0) + 1

    def succeeded(self) -> None:
        """Forget the failed attempts before this successful attempt."""
        self._failed = 0


def may_serve(
    connection: BrokerConnection,
    authorizer: StandardAuthorizer | None,
    usual: UsualWay,
    client_id: str | None,
    needed: RightsNeeded,
) -> bool:
    """Whether a lane may serve a request: the authorizer has allowed the same request before, and the client has no
    quota on processor time.
    """
    if authorizer is not None:
        rights = connection.rights
        if rights is None or rights.epoch is not authorizer.epoch:
            return False
        for right in needed:
            if right not in rights.allowed:
                return False
    throttling = usual.throttling
    if throttling is not None:
        limits = throttling.known_limits(connection, client_id)
        return limits is not None and limits.request is None
    return True


class ConstantAnswer:
    """A response whose bytes are constant after its correlation id."""

    __slots__ = ("_body", "_size")

    def __init__(self, route: Route, version: int, response: Any) -> None:
        head = b"\0" if route.flexible_response else b""
        self._body = head + codec(type(response), version).encode(response)
        self._size = HEAD.size - 4 + len(self._body)

    def of(self, correlation_id: int) -> bytes:
        """Return the frame of the response to the request with this correlation id."""
        return HEAD.pack(self._size, correlation_id) + self._body


def note_time(route: Route, started: float, monotonic: Callable[[], float]) -> None:
    """Record the duration of a request that was served since `started` (monotonic seconds; 0: not timed)."""
    if started and route.times is not None:
        route.times.total.append(monotonic() - started)
