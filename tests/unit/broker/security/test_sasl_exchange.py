"""The requests that a connection may send before, during and after its login, and during re-authentication (KIP-368,
T22).
"""

from __future__ import annotations

import pytest

from oncelog_broker.config.secret import Secret
from oncelog_broker.security.sasl.exchange import Phase, SaslExchange
from oncelog_broker.security.sasl.mechanism import Refused, Step
from oncelog_broker.security.sasl.plain import PlainMechanism
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError

NOW = 1000.0
WALL = 1_700_000_000.0
USERS = {"alice": Secret("a"), "bob": Secret("b")}
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"


class Expiring:
    """A SASL mechanism whose tokens expire."""

    def step(self, token: bytes, now_s: float) -> Step:
        return Step(b"", "alice", now_s + 10)


def exchange(max_reauth_ms: int = 0) -> SaslExchange:
    mechanisms = {"PLAIN": lambda: PlainMechanism(USERS), "OAUTHBEARER": Expiring}
    return SaslExchange(mechanisms, dict.fromkeys(mechanisms, max_reauth_ms))


def logged_in(max_reauth_ms: int = 0) -> SaslExchange:
    done = exchange(max_reauth_ms)
    done.handshake("PLAIN", 1)
    done.authenticate(ALICE, WALL, NOW)
    return done


def allowed(asked: SaslExchange, now: float = NOW) -> set[ApiKey]:
    return {key for key in ApiKey if asked.allows(key, now)}


def test_requests_are_limited_before_during_and_after_the_login() -> None:
    machine = exchange()
    assert allowed(machine) == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    machine.handshake("PLAIN", 1)
    assert allowed(machine) == {ApiKey.SASL_AUTHENTICATE}
    progress = machine.authenticate(ALICE, WALL, NOW)
    assert (str(progress.principal), progress.session_lifetime_ms) == ("User:alice", 0)
    assert allowed(machine) == set(ApiKey)


def test_raw_tokens_are_read_after_handshake_version_0() -> None:
    machine = exchange()
    machine.handshake("PLAIN", 0)
    assert machine.phase is Phase.RAW_TOKENS
    assert not allowed(machine)
    machine.authenticate(ALICE, WALL, NOW)
    assert machine.is_done


def test_a_disabled_mechanism_is_refused() -> None:
    machine = exchange()
    with pytest.raises(KafkaError, match="enabled: PLAIN, OAUTHBEARER") as raised:
        machine.handshake("GSSAPI", 1)
    assert raised.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert not allowed(machine)


def test_no_request_is_accepted_after_a_refusal() -> None:
    machine = exchange()
    machine.handshake("PLAIN", 1)
    with pytest.raises(Refused):
        machine.authenticate(b"\0alice\0wrong", WALL, NOW)
    assert not allowed(machine)
    for ask in (lambda: machine.authenticate(ALICE, WALL, NOW), lambda: machine.handshake("PLAIN", 1)):
        with pytest.raises(KafkaError) as raised:
            ask()
        assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE


def test_tokens_before_the_handshake_are_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        exchange().authenticate(ALICE, WALL, NOW)
    assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE


def test_re_authentication_happens_only_if_required() -> None:
    with pytest.raises(KafkaError) as raised:
        logged_in().handshake("PLAIN", 1)
    assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE
    again = logged_in(max_reauth_ms=60_000)
    again.handshake("PLAIN", 1)
    assert allowed(again) == {ApiKey.SASL_AUTHENTICATE}
    assert again.authenticate(ALICE, WALL, NOW + 50).session_lifetime_ms == 60_000
    assert not again.is_expired(NOW + 109)


def test_after_its_end_a_session_may_only_be_renewed() -> None:
    machine = logged_in(max_reauth_ms=60_000)
    assert allowed(machine, NOW + 60) == set(ApiKey)
    assert allowed(machine, NOW + 61) == {ApiKey.SASL_HANDSHAKE}


def test_s86_a_session_ends_whatever_the_wall_clock_does() -> None:
    """The wall clock was wrong at the login, and the session still lasts as long as announced."""
    machine = exchange(max_reauth_ms=60_000)
    machine.handshake("PLAIN", 1)
    assert machine.authenticate(ALICE, WALL + 10**9, NOW).session_lifetime_ms == 60_000
    assert allowed(machine, NOW + 60) == set(ApiKey)
    assert allowed(machine, NOW + 61) == {ApiKey.SASL_HANDSHAKE}


def test_re_authentication_cannot_change_the_user() -> None:
    machine = logged_in(max_reauth_ms=60_000)
    machine.handshake("PLAIN", 1)
    with pytest.raises(Refused, match="Cannot change principals"):
        machine.authenticate(BOB, WALL, NOW)
    other = logged_in(max_reauth_ms=60_000)
    with pytest.raises(KafkaError) as raised:
        other.handshake("OAUTHBEARER", 1)
    assert raised.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 10_000), (4_000, 4_000), (60_000, 10_000)])
def test_a_session_is_no_longer_than_its_token(max_reauth_ms: int, lifetime_ms: int) -> None:
    machine = exchange(max_reauth_ms)
    machine.handshake("OAUTHBEARER", 1)
    assert machine.authenticate(b"", WALL, NOW).session_lifetime_ms == lifetime_ms
