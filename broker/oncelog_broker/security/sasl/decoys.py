"""Decoy credentials for the first SCRAM response to unknown users, so that the response does not reveal which users
exist.

A decoy looks like the credential of a real user, its *model*: it has the same number of iterations, and a salt of the
same length and alphabet. (Kafka's tools draw a salt of 26 letters and digits, oncelog's tools one of 24 bytes.) The
model depends on the requested name, so decoys are distributed like the real credentials. A name gets the same salt
until its model changes. Only the first users in the order of names are models, so the model changes when it is deleted,
or when it is no longer among the first users. All brokers of a cluster create the same decoys, because they share the
key.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from oncelog_broker.security.sasl.credentials import ScramCredential, parse_credential
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.scram import MIN_ITERATIONS, ScramMechanism

UserConfigs = Mapping[str | None, Mapping[str, str]]
"""The settings of all users in the metadata store, including their SCRAM credentials."""

MODELS: Final = 16
"""Limit on the users that may serve as models. One model is selected at each login, even for existing users, so that
every login takes the same time.
"""
LOOKED_AT: Final = 1000
"""Limit on the users that are searched for possible models each time that the users change; only the first users in the
order of names are searched. The users are taken in the order of names, because the order in which a broker has learned
of them differs between brokers, and between restarts of one broker.
"""
KEY_BYTES: Final = 32
LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class Model(NamedTuple):
    """The properties of a credential that a client can see."""

    name: str
    salt_bytes: int
    has_letters: bool
    iterations: int


NOBODY: Final = Model("", 24, False, MIN_ITERATIONS)
"""The model if no users exist: a credential with the parameters of oncelog's tools."""


class Decoys:
    """Creates the decoys (credentials for unknown users) of one mechanism."""

    def __init__(self, mechanism: ScramMechanism, key: Callable[[], bytes]) -> None:
        """`key` returns a secret of the cluster, KEY_BYTES bytes long."""
        self._mechanism = mechanism
        self._key = key
        self._users: UserConfigs = {}
        self._models: tuple[Model, ...] = ()

    def credential(self, user: str, users: UserConfigs) -> ScramCredential:
        """Return a decoy: a credential without a known password. The call takes the same time for any name."""
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
