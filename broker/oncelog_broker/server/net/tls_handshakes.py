"""Schedules TLS handshakes: each step of one costs the loop about a millisecond.

One step is taken in an iteration of the loop, however many clients there are. At most MAX_AT_ONCE handshakes run at a
time; the other clients wait, with their first bytes buffered. Addresses begin handshakes in turn, a new address first,
so that an address with thousands of clients delays only its own clients. Within an address the newest client begins
first: if more clients come than can be served, an old one has disconnected, or will, before its handshake could begin.

When MAX_AT_ONCE are running, an address with more of them than a waiting address gives up its oldest handshake. Among
addresses with equally many, a handshake that has made no progress for LEFT_SECONDS is given up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import islice
from typing import Final, Protocol

from oncelog_broker.runtime.round_robin import RoundRobin

MAX_AT_ONCE: Final = 256
"""Handshakes under way at the same time: some 50 KB each."""
LEFT_SECONDS: Final = 0.5
"""Seconds without progress after which a handshake may be given up for another."""
HOSTS_LOOKED_AT: Final = 8
"""How many waiting addresses are searched for one with fewer handshakes than another."""
HANDSHAKE_SECONDS: Final = 10.0
"""Seconds from the connection to the end of its handshake."""


class Handshake(Protocol):
    """The handshake of one client."""

    @property
    def host(self) -> str:
        """The client's address."""

    def take_step(self) -> None:
        """Process the received bytes."""

    def close(self, reason: str) -> None:
        """Give it up."""


class TlsHandshakes:
    """The handshakes of one broker. An address without handshakes is forgotten."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, float] = {}
        """Handshake -> the loop's time when it began, oldest first."""
        self._places: dict[str, dict[Handshake, None]] = {}
        """Address -> its handshakes under way, oldest first."""
        self._waiting: OrderedDict[str, dict[Handshake, None]] = OrderedDict()
        """Address -> its waiting handshakes, newest last; the address whose turn is next first."""
        self._ready: deque[Handshake] = deque()
        self._round_robin = RoundRobin()
        """It has one member, these handshakes: one step is taken in an iteration of the loop."""
        self._is_member = False
        self._timer: asyncio.TimerHandle | None = None
        """When it fires another handshake may begin; None if no time is known."""

    def __len__(self) -> int:
        return len(self._under_way)

    def on_input(self, handshake: Handshake) -> None:
        """Bytes have arrived for the handshake: it needs a slice."""
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
        """The handshake is done, or its client has disconnected. Harmless for an unknown one."""
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
        """One step of one handshake. Returns False: the handshake joins again by itself, whatever the step raises."""
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
        """The address whose turn is next, and the seconds until its handshake may begin."""
        first = next(iter(self._waiting))
        if len(self._under_way) < MAX_AT_ONCE:
            return first, 0.0
        most = self._most_places()
        for host in islice(self._waiting, HOSTS_LOOKED_AT):
            if len(self._places.get(host, ())) + 1 < len(most):
                return host, 0.0  # the address with the most gives one up, and still has as many
        began = self._under_way[next(iter(most))]
        return first, max(0.0, began + LEFT_SECONDS - asyncio.get_running_loop().time())

    def _most_places(self) -> dict[Handshake, None]:
        """The handshakes of the address that has the most, oldest first."""
        return max(self._places.values(), key=len)

    def _give_up_place(self, handshake: Handshake) -> None:
        if self._under_way.pop(handshake, None) is None:
            return
        places = self._places[handshake.host]
        del places[handshake]
        if not places:
            del self._places[handshake.host]
