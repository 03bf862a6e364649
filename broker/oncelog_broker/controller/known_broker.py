"""The controller's knowledge of one broker. Pure."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.light_classes import NamedTuple

NOT_REGISTERED: Final = -1
NEVER: Final = -1


class KnownBroker(NamedTuple):
    """A broker that is registered now, or was registered earlier."""

    id: int
    epoch: int = NOT_REGISTERED
    """The zxid of the broker's registration; NOT_REGISTERED while the broker is away."""
    rack: str | None = None
    incarnation: int | None = None
    """The version of the node that counts the broker's registrations; None if the broker has no such node. Invariant:
    `incarnation` is never newer than `epoch`, because it is read before the registration.
    """
    unsure_since: int = NEVER
    """The epoch of the broker's last registration after its machine had gone down, so that its logs may have lost their
    last records. The value is kept while the broker is absent; NEVER if the broker never registered with a possible
    loss. A partition state that is newer than this epoch was decided when the controller already knew of the loss.
    """
    is_stopping: bool = False
    """Whether the broker has requested its controlled shutdown in this registration. A stopping broker stays in an ISR
    only as the last member, leads no partition that another replica can lead, and gets no new replica."""

    @property
    def is_live(self) -> bool:
        """Whether the broker is registered."""
        return self.epoch != NOT_REGISTERED

    def is_steady_since(self, written: int) -> bool:
        """Whether the broker has been registered without a break since a partition state was written. `written`: the
        zxid of the write of this state. This write has checked the incarnations of all members of the ISR."""
        return NOT_REGISTERED != self.epoch <= written

    def is_unsure_of(self, written: int) -> bool:
        """Whether the broker may have lost records since a partition state was written with the zxid `written`. A later
        registration without loss does not change the result.
        """
        return self.unsure_since > written


def unknown_broker(broker: int) -> KnownBroker:
    """Return a broker that has never registered, or whose nodes were removed."""
    return KnownBroker(broker)
