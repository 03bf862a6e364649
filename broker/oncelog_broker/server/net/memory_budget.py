"""Counts how many bytes of requests or responses each connection and each address uses. Back-pressure is based on these
counts. Pure.

A `MemoryBudget` limits the bytes of requests, or the bytes of responses, that all connections together may use. The
share of a connection depends on the usage of all other connections: an address may use three quarters of the bytes that
other addresses leave free in the budget. A connection may use three quarters of the bytes that the other connections of
its address leave free in the share of the address. So a new connection always gets some bytes, however many bytes are
in use, and a connection that is alone gets more than half of the budget (the "dynamic thresholds" of shared packet
buffers, Choudhury and Hahne 1998).

A request may need more than a share, and several half-received requests must not wait for each other forever: so at any
time one holding (the bytes of one connection) may exceed its share. That holding is the waiting holding that needs the
fewest bytes in total. The total is therefore at most the budget plus one request.

If other connections wait for memory, a connection that uses memory and makes no progress (`Progress`) is disconnected.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

TURNOVER_SECONDS: Final = 30.0
"""While other connections wait for memory, a connection that uses memory must, in this number of seconds, receive or
send as many bytes as it uses.
"""
PROGRESS_WINDOW_SECONDS: Final = 5.0
"""The number of seconds for which progress is measured; a client that pauses for a shorter time is not disconnected."""
BEYOND_WINDOW_SECONDS: Final = 1.0
"""The number of seconds for which progress is measured while a holding (the bytes of one connection) exceeds its share.
This time is shorter, because the connection uses memory that others need.
"""

NO_LIMIT: Final = -1
UNLIMITED: Final = 2**63 - 1
"""The number of bytes that remain for a holding (the bytes of one connection) whose budget has NO_LIMIT."""


def _share(left: int) -> int:
    return left * 3 // 4


class MemoryBudget:
    """The memory budget for the bytes of requests, or for the bytes of responses. A `limit` of NO_LIMIT means that the
    budget is unlimited.
    """

    __slots__ = ("_least", "_waiting", "beyond", "by_address", "is_short", "is_tight", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        """Bytes in use, without the bytes of the holding `beyond`."""
        self.by_address: Counter[str] = Counter()
        """The part of `used` that each address uses."""
        self.beyond: Holding | None = None
        """The only holding (bytes of one connection) that may exceed its share; None if no holding does."""
        self.is_tight = False
        """Whether more than half of the limit is in use."""
        self.is_short = False
        """Whether a holding (bytes of one connection) was refused bytes, and more than half of the limit has been in
        use ever since.
        """
        self._waiting: dict[Holding, int] = {}
        """Holdings (bytes of one connection each) that were refused more than their share, each with the bytes that it
        needs in total.
        """
        self._least: int | None = None
        """The lowest value in `_waiting`; None means that it must be computed."""

    @property
    def total(self) -> int:
        """The bytes of all holdings together."""
        return self.used + (0 if self.beyond is None else self.beyond.held)

    def _add(self, address: str, size: int) -> None:
        self.used += size
        left = self.by_address[address] + size
        if left:
            self.by_address[address] = left
        else:
            del self.by_address[address]
        self.is_tight = 0 <= self.limit < 2 * self.used
        if not self.is_tight:
            self.is_short = False

    def _wait(self, holding: Holding, needs: int) -> None:
        self.is_short = True
        self._no_longer_waits(holding)
        self._waiting[holding] = needs
        if self._least is not None:
            self._least = min(self._least, needs)

    def _no_longer_waits(self, holding: Holding) -> None:
        needs = self._waiting.pop(holding, None)
        if needs is not None and needs == self._least:
            self._least = None

    def _is_next(self, needs: int) -> bool:
        """Return whether a holding (bytes of one connection) that needs `needs` bytes in total may now exceed its
        share.
        """
        if self.beyond is not None or not self._waiting:
            return self.beyond is None
        if self._least is None:
            self._least = min(self._waiting.values())
        return needs <= self._least


class Holding:
    """A holding: the bytes of a budget that one connection uses."""

    __slots__ = ("_address", "_budget", "held")

    def __init__(self, budget: MemoryBudget, address: str) -> None:
        self._budget = budget
        self._address = address
        self.held = 0

    @property
    def share(self) -> int:
        """The most bytes that this holding may use, given the usage of the other holdings; negative if the other
        holdings exceed their shares.
        """
        budget = self._budget
        of_address = budget.by_address[self._address]
        own = 0 if budget.beyond is self else self.held
        of_all = _share(budget.limit - (budget.used - of_address))
        return _share(of_all - (of_address - own))

    @property
    def room(self) -> int:
        """How many more bytes this holding may use; 0 if it may use no more bytes."""
        return UNLIMITED if self._budget.limit < 0 else max(0, self.share - self.held)

    def allows(self, size: int) -> bool:
        """Return whether this holding may use `size` bytes in total. A refusal sets the field `is_short` of the
        budget."""
        if self._budget.limit < 0 or size <= self.share:
            return True
        self._budget.is_short = True
        return False

    @property
    def is_beyond(self) -> bool:
        """Whether this holding is the one that may exceed its share."""
        return self._budget.beyond is self

    @property
    def is_short(self) -> bool:
        """Whether another holding of this budget was refused bytes, and more than half of the budget has been in use
        ever since.
        """
        return self._budget.is_short

    def hold(self, size: int, needs: int = 0) -> bool:
        """Set this holding to `size` bytes in total; a smaller size is always granted. Returns False if the budget has
        no memory for a larger size now.

        `needs`: the size that the holding will finally need; of the holdings that need more than their share, the
        holding with the smallest `needs` comes first.
        """
        budget = self._budget
        if size <= self.held or budget.limit < 0 or size <= self.share:
            self.owe(size)
            return True
        needs = max(size, needs)
        if budget._is_next(needs):
            budget._add(self._address, -self.held)
            budget.beyond = self
        if budget.beyond is not self:
            budget._wait(self, needs)
            return False
        budget._no_longer_waits(self)
        self.held = size
        return True

    def wait_no_longer(self) -> None:
        """Leave the queue of waiting holdings, because this holding needs no more memory for now."""
        self._budget._no_longer_waits(self)

    def owe(self, size: int) -> None:
        """Set this holding to `size` bytes in total, without checking its share: the bytes are already in memory, so
        they must be counted."""
        budget = self._budget
        budget._no_longer_waits(self)
        if budget.beyond is self:
            if size > max(self.share, 0):
                self.held = size
                return
            budget.beyond = None
            self.held = 0
        budget._add(self._address, size - self.held)
        self.held = size

    def moved_to(self, budget: MemoryBudget) -> Holding:
        """Move all bytes of this holding to another budget; returns the new holding there."""
        other = Holding(budget, self._address)
        other.owe(self.held)
        self.owe(0)
        return other

    def handed_over(self) -> Holding:
        """Return a new holding that takes over all bytes of this holding, for bytes that no longer belong to their
        connection but are still in use.
        """
        other = Holding(self._budget, self._address)
        if self._budget.beyond is self:
            self._budget.beyond = other
        other.held, self.held = self.held, 0
        return other


class Progress:
    """Decides whether a connection moves enough bytes for the memory that it uses. `is_too_slow` must be called
    periodically; `now` is in seconds.
    """

    __slots__ = ("_moved", "_since")

    def __init__(self, now: float, moved: int = 0) -> None:
        self._since = now
        self._moved = moved

    def restart(self, now: float, moved: int) -> None:
        """Start a new measurement: the time until now does not count."""
        self._since, self._moved = now, moved

    def is_too_slow(self, now: float, moved: int, held: int, window_seconds: float = PROGRESS_WINDOW_SECONDS) -> bool:
        """Return whether fewer than `held` bytes per TURNOVER_SECONDS have moved since the last measurement. The result
        is False until `window_seconds` have passed.

        `moved`: bytes moved since the connection began.
        """
        elapsed = now - self._since
        if elapsed < window_seconds:
            return False
        is_slow = (moved - self._moved) * TURNOVER_SECONDS < held * elapsed
        self.restart(now, moved)
        return is_slow
