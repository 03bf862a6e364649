"""Schedules TLS handshakes, because each step of a handshake costs the loop about a millisecond.

Each iteration of the loop runs one step of one handshake, whatever the number of clients. At most MAX_AT_ONCE
handshakes run concurrently; the other clients wait, with their first bytes buffered. Handshakes of different addresses
start in round-robin order, and a new address comes first. So an address with thousands of clients delays only its own
clients. Of the clients of one address, the newest client starts first, because with too many clients, an old client
would give up before the end of its handshake.

While MAX_AT_ONCE handshakes run, a waiting address with fewer running handshakes replaces the oldest handshake of the
address that has the most. If no waiting address has fewer running handshakes, a waiting handshake replaces a handshake
that is unfinished LEFT_SECONDS after its start.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import islice
from typing import Final, Protocol

from oncelog_broker.runtime.round_robin import RoundRobin

MAX_AT_ONCE: Final = 256
"""Limit on concurrent handshakes, each of which uses some 50 KB."""
LEFT_SECONDS: Final = 0.5
"""Seconds after which an unfinished handshake may be aborted so that another handshake can start."""
HOSTS_LOOKED_AT: Final = 8
"""The maximum number of waiting addresses that one search visits. The search looks for an address with fewer running
handshakes than the address that has the most.
"""
HANDSHAKE_SECONDS: Final = 10.0
"""The maximum number of seconds from the start of a connection to the end of its handshake."""


class Handshake(Protocol):
    """The TLS handshake of one client."""

    @property
    def host(self) -> str:
        """The client's address."""

    def take_step(self) -> None:
        """Process the received bytes of the handshake."""

    def close(self, reason: str) -> None:
        """Abort the handshake."""


class TlsHandshakes:
    """Schedules the TLS handshakes of one broker. An address without handshakes takes no memory."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, float] = {}
        """The running handshakes, oldest first, each with the loop's time at which it began."""
        self._places: dict[str, dict[Handshake, None]] = {}
        """For each address, its running handshakes, oldest first."""
        self._waiting: OrderedDict[str, dict[Handshake, None]] = OrderedDict()
        """For each address, its waiting handshakes, newest last; the address whose handshake starts next comes first.
        """
        self._ready: deque[Handshake] = deque()
        self._round_robin = RoundRobin()
        """The only member of this round robin is this scheduler, so that each iteration of the loop runs only one step
        of one handshake.
        """
        self._is_member = False
        self._timer: asyncio.TimerHandle | None = None
        """The timer after which another handshake may start; None if no such time is known."""

    def __len__(self) -> int:
        return len(self._under_way)

    def on_input(self, handshake: Handshake) -> None:
        """Schedule the handshake: bytes have arrived for it."""
        if handshake in self._under_way:
            self._ready.append(handshake)
        else:
            host = handshake.host
            if host not in self._waiting:
                self._waiting[host] = {}
                self._waiting.move_to_end(host, last=False)
            self._waiting[host][handshake] = None
        self._join()

    def leave(self, handshake: Handshake) -> None:
        """Remove a handshake that is done or whose client has disconnected. Does nothing for an unknown handshake."""
        self._give_up_place(handshake)
        waiting = self._waiting.get(handshake.host)
        if waiting is not None:
            waiting.pop(handshake, None)
            if not waiting:
                del self._waiting[handshake.host]
        if self._waiting:
            self._join()

    def _join(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_member:
            self._is_member = True
            self._round_robin.join(self)

    def take_slice(self) -> bool:
        """Take one step of one handshake. Returns False, so that the round robin does not add this scheduler again;
        `take_slice` adds it itself, even if the step raises an exception.
        """
        self._is_member = False
        try:
            self._take_one_step()
        finally:
            if self._ready:
                self._join()
            elif self._waiting:
                self._join_after(self._next()[1])
        return False

    def _join_after(self, seconds: float) -> None:
        if not seconds:
            self._join()
        elif self._timer is None and not self._is_member:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._join)

    def _take_one_step(self) -> None:
        while self._ready:
            handshake = self._ready.popleft()
            if handshake in self._under_way:
                handshake.take_step()
                return
        self._begin_one()

    def _begin_one(self) -> None:
        if not self._waiting:
            return
        host, seconds = self._next()
        if seconds > 0:
            return
        if len(self._under_way) >= MAX_AT_ONCE:
            oldest = next(iter(self._most_places()))
            self._give_up_place(oldest)
            oldest.close("its TLS handshake does not go on while others wait")
        newest, _ = self._waiting[host].popitem()
        if self._waiting[host]:
            self._waiting.move_to_end(host)
        else:
            del self._waiting[host]
        self._under_way[newest] = asyncio.get_running_loop().time()
        self._places.setdefault(host, {})[newest] = None
        newest.take_step()

    def _next(self) -> tuple[str, float]:
        """Return the next address to serve, and the seconds until its handshake may start."""
        first = next(iter(self._waiting))
        if len(self._under_way) < MAX_AT_ONCE:
            return first, 0.0
        most = self._most_places()
        for host in islice(self._waiting, HOSTS_LOOKED_AT):
            if len(self._places.get(host, ())) + 1 < len(most):
                # Abort the oldest handshake of the address with the most handshakes only if that address afterwards
                # still has at least as many handshakes as this address.
                return host, 0.0
        began = self._under_way[next(iter(most))]
        return first, max(0.0, began + LEFT_SECONDS - asyncio.get_running_loop().time())

    def _most_places(self) -> dict[Handshake, None]:
        """Return the handshakes of the address that has the most handshakes, oldest first."""
        return max(self._places.values(), key=len)

    def _give_up_place(self, handshake: Handshake) -> None:
        if self._under_way.pop(handshake, None) is None:
            return
        places = self._places[handshake.host]
        del places[handshake]
        if not places:
            del self._places[handshake.host]
