"""The controller's knowledge of one broker. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

NOT_REGISTERED: Final = -1
NEVER: Final = -1


class KnownBroker(NamedTuple):
    """A broker that is registered, or was once."""

    id: int
    epoch: int = NOT_REGISTERED
    """The zxid of its registration; NOT_REGISTERED while it is away."""
    rack: str | None = None
    incarnation: int | None = None
    """The version of the node that counts the broker's registrations; None if it has no such node. Invariant: the
    incarnation is read before the registration, so it is never newer than `epoch`."""
    unsure_since: int = NEVER
    """The epoch of its last registration after which it may lack the end of its logs (its machine had gone down), also
    while it is absent; NEVER if there was no such registration. A newer partition state was decided with that
    knowledge."""
    is_stopping: bool = False
    """The broker has asked for its controlled shutdown in this registration. It stays in an ISR only as the last
    member, leads no partition that another replica can lead, and gets no new replica."""

    @property
    def is_live(self) -> bool:
        """Whether it is registered."""
        return self.epoch != NOT_REGISTERED

    def is_steady_since(self, written: int) -> bool:
        """Whether it has been registered without a break since a state was written. `written`: zxid of that write,
        which checked the incarnations of the state's whole ISR."""
        return NOT_REGISTERED != self.epoch <= written

    def is_unsure_of(self, written: int) -> bool:
        """Whether the broker may have lost records since the state of zxid `written`, however often it has returned
        since."""
        return self.unsure_since > written


def unknown_broker(broker: int) -> KnownBroker:
    """A broker that has never registered, or whose nodes were removed."""
    return KnownBroker(broker)
