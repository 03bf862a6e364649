"""What the first answer of SCRAM says of users that do not exist, so that nobody learns from it who does.

A decoy looks like the credential of some user that there is: as many iterations, a salt as long and of the same letters
(Kafka's tools draw 26 letters and digits, ours 24 bytes). Which user it is depends on the name that was asked for, so
that there are as many decoys of each kind as users, and it is the same user and the same salt each time, until that
user goes, or, where there are many, one comes whose name is before; all brokers of a cluster say the same, since they
share the key.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from oncelog_broker.security.sasl.credentials import ScramCredential, parse_credential
from oncelog_protocol.scram import MIN_ITERATIONS, ScramMechanism

UserConfigs = Mapping[str | None, Mapping[str, str]]
"""The settings of all users in the metadata store, their SCRAM credentials among them."""

MODELS: Final = 16
"""Users that decoys may look like. One is chosen at each login, of those who exist, too: it takes time."""
LOOKED_AT: Final = 1000
"""Users among whom those are looked for, when one has changed: the first ones by name. The order in which a broker has
them is that in which it heard of them, which no other one has, nor it itself when it starts anew."""
KEY_BYTES: Final = 32
LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class Model(NamedTuple):
    """What can be seen of a user's credential."""

    name: str
    salt_bytes: int
    has_letters: bool
    iterations: int


NOBODY: Final = Model("", 24, False, MIN_ITERATIONS)
"""Where there are no users at all: as those that our tools make."""


class Decoys:
    """Those of one mechanism."""

    def __init__(self, mechanism: ScramMechanism, key: Callable[[], bytes]) -> None:
        """`key`: a secret of the cluster, of KEY_BYTES."""
        self._mechanism = mechanism
        self._key = key
        self._users: UserConfigs = {}
        self._models: tuple[Model, ...] = ()

    def credential(self, user: str, users: UserConfigs) -> ScramCredential:
        """With a key that nobody has. Costs the same for any name."""
        if users is not self._users:
            self._users, self._models = users, tuple(islice(_models(self._mechanism, users), MODELS))
        key = self._key()
        asked = _digest(key, user)
        model = max(self._models, key=lambda each: _digest(asked, each.name), default=NOBODY)
        salt = hashlib.shake_256(asked).digest(model.salt_bytes)
        if model.has_letters:
            salt = bytes(LETTERS[byte % len(LETTERS)] for byte in salt)
        nobody = hashlib.new(self._mechanism.hash_name, key + salt).digest()
        return ScramCredential(salt, nobody, nobody, model.iterations)


def _models(mechanism: ScramMechanism, users: UserConfigs) -> Iterator[Model]:
    for name in heapq.nsmallest(LOOKED_AT, (name for name in users if name is not None)):
        text = users[name].get(mechanism.mechanism_name)
        if text is None:
            continue
        try:
            found = parse_credential(text)
        except ValueError:
            continue
        has_letters = all(byte in LETTERS for byte in found.salt)
        yield Model(name, len(found.salt), has_letters, found.iterations)


def _digest(key: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=key, digest_size=KEY_BYTES).digest()
