"""Schedules TLS handshakes: each step of one costs the loop about a millisecond.

One step is taken in a turn of the loop, however many clients there are. At most MAX_AT_ONCE handshakes are under way;
the other clients wait, with their first bytes kept. Addresses begin handshakes in turn, a new address first, so that an
address with thousands of clients delays only its own. Within an address the newest client begins first: if more clients
come than can be served, an old one has gone, or will have, before its handshake could begin.

When MAX_AT_ONCE are under way, an address with more of them than another that waits gives up its oldest handshake.
Among addresses with equally many, a handshake that has made no progress for LEFT_SECONDS is given up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import islice
from typing import Final, Protocol

from oncelog_broker.runtime.round_robin import RoundRobin

MAX_AT_ONCE: Final = 256
"""Handshakes under way: some 50 KB each."""
LEFT_SECONDS: Final = 0.5
"""One that is under way for so long makes room for another."""
HOSTS_LOOKED_AT: Final = 8
"""Addresses among which one is looked for that has fewer places than others."""
HANDSHAKE_SECONDS: Final = 10.0
"""From the connection to the end of its handshake."""


class Handshake(Protocol):
    """One client's."""

    @property
    def host(self) -> str:
        """The client's address."""

    def take_step(self) -> None:
        """Handle what has come."""

    def close(self, reason: str) -> None:
        """Give it up."""


class TlsHandshakes:
    """Those of one broker. No address is kept that has nothing here."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, float] = {}
        """With the loop's time when each began, oldest first."""
        self._places: dict[str, dict[Handshake, None]] = {}
        """The same by address, oldest first."""
        self._waiting: OrderedDict[str, dict[Handshake, None]] = OrderedDict()
        """By address, the one whose turn it is next first; of each the newest last."""
        self._ready: deque[Handshake] = deque()
        self._round_robin = RoundRobin()
        """It has one member, these handshakes: one step is taken in a turn of the loop."""
        self._is_member = False
        self._timer: asyncio.TimerHandle | None = None
        """When it fires there is room for another handshake; None while that is not known to be later."""

    def __len__(self) -> int:
        return len(self._under_way)

    def on_input(self, handshake: Handshake) -> None:
        """Something has come for it: it wants a turn."""
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
        """It is done, or its client has gone. Harmless for one that never was here."""
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
        """One step of one handshake. Returns False: it joins again by itself, whatever the step raises."""
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
        """The address whose turn it is, and how many seconds later there is room for it."""
        first = next(iter(self._waiting))
        if len(self._under_way) < MAX_AT_ONCE:
            return first, 0.0
        most = self._most_places()
        for host in islice(self._waiting, HOSTS_LOOKED_AT):
            if len(self._places.get(host, ())) + 1 < len(most):
                return host, 0.0  # whoever has the most gives one up, and still has as many
        began = self._under_way[next(iter(most))]
        return first, max(0.0, began + LEFT_SECONDS - asyncio.get_running_loop().time())

    def _most_places(self) -> dict[Handshake, None]:
        """Those of the address that has the most, oldest first."""
        return max(self._places.values(), key=len)

    def _give_up_place(self, handshake: Handshake) -> None:
        if self._under_way.pop(handshake, None) is None:
            return
        places = self._places[handshake.host]
        del places[handshake]
        if not places:
            del self._places[handshake.host]
