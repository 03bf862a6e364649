"""The refusal of a start: its explanation, and the entry of `start.accept` that accepts the refused difference.

The entry contains a digest of the facts of this difference, so an old entry in the configuration does not accept a
later difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import Final

from oncelog_protocol.light_classes import NamedTuple

ACCEPT_KEY: Final = "start.accept"
DIGEST_DIGITS: Final = 8


class Kind(Enum):
    """The kinds of differences that a start refuses."""

    NEW_STORE = "new-store"
    """The metadata store is empty."""
    ALONE = "alone"
    """A member of a cluster starts without ZooKeeper."""
    OLDER_STORE = "older-store"
    """The metadata store is older than the state that the directories have recorded."""
    OTHER_STORE = "other-store"
    """The metadata store is not the store that the directories belong to."""
    OTHER_NODE = "other-node"
    """The data directories belong to a broker with another node.id; meta.properties was edited."""
    OLDER_DIRECTORY = "older-directory"
    """A data directory is older than the metadata store, and no other replica in sync has the missing records."""
    LOST_DIRECTORY = "lost-directory"
    """A data directory is missing, or was found again empty."""


class Refusal(NamedTuple):
    """A difference between directories and store that a start accepts only with an explicit setting."""

    kind: Kind
    difference: str
    """Describes the difference and its possible causes."""
    remedy: str
    """The recommended action if the difference is a mistake."""
    consequence: str
    """The consequences for records and metadata if the difference is accepted."""
    facts: tuple[str, ...]
    """The facts, as texts, from which the digest in `start.accept` is computed."""

    @property
    def accept(self) -> str:
        """The entry of `start.accept` that accepts this difference: `<kind>:<digest>`."""
        text = "\0".join((self.kind.value, *self.facts))
        return f"{self.kind.value}:{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}"

    @property
    def sentence(self) -> str:
        return f"{self.difference}. {self.remedy}. Or set {ACCEPT_KEY}={self.accept} to continue: {self.consequence}"


class StartRefused(Exception):
    """The start is refused and has changed nothing. The message explains the reasons, and what the operator can do."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        sentences = ". Also: ".join(refusal.sentence for refusal in self.refusals)
        if len(self.refusals) > 1:
            accepts = ",".join(refusal.accept for refusal in self.refusals)
            sentences += f". To accept all of this: {ACCEPT_KEY}={accepts}"
        super().__init__(sentences)
