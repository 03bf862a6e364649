"""The first SCRAM response does not reveal whether a user exists, because missing users get decoy credentials."""

from __future__ import annotations

from collections import Counter

from oncelog_broker.security.sasl import decoys as decoys_module
from oncelog_broker.security.sasl.credentials import ScramCredential
from oncelog_broker.security.sasl.decoys import LETTERS, LOOKED_AT, NOBODY, Decoys, UserConfigs
from oncelog_protocol.scram import ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
KEY = bytes(32)
STRANGERS = [f"stranger-{number}" for number in range(400)]


def user(salt: bytes, iterations: int, mechanism: ScramMechanism = SHA_256) -> dict[str, str]:
    credential = ScramCredential(salt, bytes(32), bytes(32), iterations)
    return {mechanism.mechanism_name: credential.format()}


def shape(credential: ScramCredential) -> tuple[int, bool, int]:
    return len(credential.salt), all(byte in LETTERS for byte in credential.salt), credential.iterations


def decoys(mechanism: ScramMechanism = SHA_256, key: bytes = KEY) -> Decoys:
    return Decoys(mechanism, lambda: key)


def test_decoys_have_the_same_kinds_as_users() -> None:
    """Kinds of decoys are about as frequent as kinds of users, because otherwise an unusual iteration count would
    reveal a missing user.
    """
    users: UserConfigs = {
        **{f"kafka-{number}": user(b"1a2b3c4d5e6f7g8h9i0jklmnop", 8192) for number in range(4)},
        **{f"ours-{number}": user(bytes(range(24)), 4096) for number in range(8)},
        **{f"other-{number}": user(b"x", 16384, SHA_512) for number in range(4)},
    }
    found = Counter(shape(decoys().credential(name, users)) for name in STRANGERS)
    assert set(found) == {(26, True, 8192), (24, False, 4096)}
    assert len(STRANGERS) / 6 < found[26, True, 8192] < len(STRANGERS) / 2
    assert {shape(decoys(SHA_512).credential(name, users)) for name in STRANGERS} == {(1, True, 16384)}


def test_a_decoy_stays_what_it_is_whoever_comes_and_goes_but_for_its_model() -> None:
    names = [f"user-{number}" for number in range(8)]
    users: UserConfigs = {name: user(bytes(20 + number), 5000 + number) for number, name in enumerate(names)}
    machine = decoys()
    before = {name: machine.credential(name, users) for name in STRANGERS}
    without = {name: config for name, config in users.items() if name != "user-3"}
    after = {name: machine.credential(name, without) for name in STRANGERS}
    changed = {name for name in STRANGERS if before[name] != after[name]}
    assert changed == {name for name in STRANGERS if before[name].iterations == 5003}
    assert {name: machine.credential(name, users) for name in STRANGERS} == before


def test_brokers_with_the_same_key_make_the_same_decoys() -> None:
    assert decoys().credential("bob", {}) == decoys().credential("bob", {})
    assert decoys(key=b"x" * 32).credential("bob", {}).salt != decoys().credential("bob", {}).salt
    assert decoys().credential("eve", {}).salt != decoys().credential("bob", {}).salt


def test_decoys_do_not_depend_on_the_order_of_users() -> None:
    """A broker that has just started sees the users in another order than a broker that has run for longer."""
    users: UserConfigs = {
        f"user-{number}": user(bytes(20 + number % 3), 5000 + number) for number in range(3 * decoys_module.MODELS)
    }
    elsewhere = dict(reversed(users.items()))
    for name in STRANGERS:
        assert decoys().credential(name, users) == decoys().credential(name, elsewhere)


def test_decoys_without_readable_users_have_the_defaults_of_our_tools() -> None:
    users: UserConfigs = {None: {}, "broken": {SHA_256.mechanism_name: "nothing"}, "other": user(b"x", 9999, SHA_512)}
    for known in ({}, users):
        assert shape(decoys().credential("bob", known)) == (NOBODY.salt_bytes, False, NOBODY.iterations)


def test_few_users_are_looked_at_and_only_when_one_has_changed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    read = []
    parse = decoys_module.parse_credential
    monkeypatch.setattr(decoys_module, "parse_credential", lambda text: read.append(text) or parse(text))
    users: UserConfigs = {f"user-{number}": user(b"salt", 4096) for number in range(5000)}
    machine = decoys()
    for name in STRANGERS:
        machine.credential(name, users)
    assert len(read) == decoys_module.MODELS
    late: UserConfigs = {**{f"none-{number}": {} for number in range(LOOKED_AT)}, "one": user(b"salt", 7777)}
    assert machine.credential("bob", late).iterations == NOBODY.iterations
