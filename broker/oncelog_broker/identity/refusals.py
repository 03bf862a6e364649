"""Why a start is refused, in words, with the setting `start.accept` that lets it go on.

What is accepted is named by a digest of the facts: a setting that is left in a file accepts nothing else later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

ACCEPT_KEY: Final = "start.accept"
DIGEST_DIGITS: Final = 8


class Kind(Enum):
    """The kinds of differences that a start refuses."""

    NEW_STORE = "new-store"
    """The metadata store is empty."""
    ALONE = "alone"
    """A member of a cluster starts without ZooKeeper."""
    OLDER_STORE = "older-store"
    """The metadata store is an earlier state of what the directories know."""
    OTHER_STORE = "other-store"
    """The metadata store is not the one that the directories belong to."""
    OLDER_DIRECTORY = "older-directory"
    """A data directory of a broker that is alone is older than its metadata."""
    LOST_DIRECTORY = "lost-directory"
    """A data directory of a broker that is alone is missing."""


class Refusal(NamedTuple):
    """One difference that a start does not go over by itself."""

    kind: Kind
    difference: str
    """What differs, and what may have happened."""
    remedy: str
    """What to do if it was a mistake."""
    consequence: str
    """What happens to records where it is accepted."""
    facts: tuple[str, ...]
    """What the digest is made of."""

    @property
    def accept(self) -> str:
        """What `start.accept` must have."""
        text = "\0".join((self.kind.value, *self.facts))
        return f"{self.kind.value}:{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}"

    @property
    def sentence(self) -> str:
        return f"{self.difference}. {self.remedy}. Or set {ACCEPT_KEY}={self.accept} to go on: {self.consequence}"


class StartRefused(Exception):
    """The broker does not start with what it found; nothing was changed. The message says why and how to go on."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        sentences = ". Also: ".join(refusal.sentence for refusal in self.refusals)
        if len(self.refusals) > 1:
            accepts = ",".join(refusal.accept for refusal in self.refusals)
            sentences += f". To accept all of this: {ACCEPT_KEY}={accepts}"
        super().__init__(sentences)
