"""PLAIN, SCRAM and OAUTHBEARER as state machines: correct and wrong logins, and attacks."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from oncelog.connection.sasl import OAuthClient, PlainClient, ScramClient
from oncelog.errors import AuthenticationFailed
from oncelog_broker.config.secret import Secret
from oncelog_broker.security.sasl.credentials import ScramCredential, new_credential, parse_credential
from oncelog_broker.security.sasl.decoys import Decoys
from oncelog_broker.security.sasl.jwks import parse_keys
from oncelog_broker.security.sasl.mechanism import Refused, Step
from oncelog_broker.security.sasl.oauthbearer import OAuthExchange, TokenRules
from oncelog_broker.security.sasl.plain import PlainMechanism
from oncelog_broker.security.sasl.scram import MAX_TOKEN_BYTES, ScramExchange
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.scram import (
    MIN_ITERATIONS,
    ScramMechanism,
    auth_message,
    client_key,
    from_base64,
    keyed,
    salted_password,
    stored_key,
    to_base64,
    xor,
)

NOW = 1_000_000.0
SALT = b"0123456789abcdef"
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
KNOWN = {mechanism: new_credential(mechanism, "pencil", SALT, MIN_ITERATIONS) for mechanism in ScramMechanism}


def scram(mechanism: ScramMechanism = SHA_256, user: str = "alice") -> ScramExchange:
    def credential_of(name: str) -> tuple[ScramCredential, bool]:
        return (
            (KNOWN[mechanism], True)
            if name == user
            else (Decoys(mechanism, lambda: b"key").credential(name, {}), False)
        )

    return ScramExchange(mechanism, "server-nonce", credential_of)


def client(user: str = "alice", password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(mechanism, user, password, "client-nonce")


def exchanged(theirs: ScramClient, ours: ScramExchange) -> Step:
    proof = theirs.answer(ours.step(theirs.first(), NOW).token)
    assert proof is not None
    step = ours.step(proof, NOW)
    assert theirs.answer(step.token) is None
    return step


# --- PLAIN


def test_plain_takes_the_right_password() -> None:
    users = {"alice": Secret("wönder,land")}
    assert PlainMechanism(users).step(PlainClient("alice", "wönder,land").first(), NOW).user == "alice"
    assert PlainMechanism(users).step(b"alice\0alice\0" + "wönder,land".encode(), NOW).user == "alice"


@pytest.mark.parametrize(
    "token",
    [b"", b"\0", b"\0alice\0", b"\0\0secret", b"\0alice\0wrong", b"\0bob\0secret", b"\0alice\0secret\0",
     b"\0\xff\0secret", b"bob\0alice\0secret", b"\0nobody\0\0", b"\0nobody\0" + b"\\0"],
)  # fmt: skip
def test_plain_refuses_everything_but_the_right_password(token: bytes) -> None:
    with pytest.raises(Refused) as raised:
        PlainMechanism({"alice": Secret("secret")}).step(token, NOW)
    assert "secret" not in raised.value.message + raised.value.reason


# --- SCRAM


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_proves_both_sides(mechanism: ScramMechanism) -> None:
    assert exchanged(client(mechanism=mechanism), scram(mechanism)).user == "alice"


def test_the_example_of_rfc_7677_is_reproduced() -> None:
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    credential = new_credential(SHA_256, "pencil", salt, 4096)
    ours = ScramExchange(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", lambda _: (credential, True))
    first = ours.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW)
    assert first.token == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = ours.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        NOW,
    )
    assert last == Step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    assert exchanged(client("a,b=c"), scram(user="a,b=c")).user == "a,b=c"


def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike() -> None:
    messages = []
    for theirs in (client(password="pen"), client("bob")):
        ours = scram()
        proof = theirs.answer(ours.step(theirs.first(), NOW).token)
        assert proof is not None
        with pytest.raises(Refused) as raised:
            ours.step(proof, NOW)
        messages.append(raised.value.message)
    assert messages[0] == messages[1]


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    first, second = (scram().step(client("bob").first(), NOW).token for _ in range(2))
    assert first == second
    assert len(parse_credential(KNOWN[SHA_256].format()).stored_key) == len(
        Decoys(SHA_256, lambda: b"key").credential("bob", {}).stored_key
    )


@pytest.mark.parametrize("first", [b"n,,n=%b,r=nonce", b"n,,n=alice,r=%b", b"n,a=%b,n=alice,r=nonce", b"%b"])
def test_scram_refuses_a_first_message_above_max_token_bytes(first: bytes) -> None:
    with pytest.raises(Refused, match="invalid credentials"):
        scram().step(first % (b"x" * MAX_TOKEN_BYTES), NOW)
    assert exchanged(client(user="a" * 200), scram(user="a" * 200)).user == "a" * 200


def last_message(first: str, binding: str, extension: str = "") -> tuple[ScramExchange, bytes]:
    """Return the exchange after the message `first`, and a last message with a correct proof."""
    ours = scram()
    answer = ours.step(first.encode(), NOW).token.decode()
    bare = first.split(",", 2)[2]
    nonce, salt, iterations = (part[2:] for part in answer.split(","))
    without_proof = f"c={binding},r={nonce}{extension}"
    salted = salted_password(SHA_256, "pencil", from_base64(salt), int(iterations))
    key = client_key(SHA_256, salted)
    signature = keyed(SHA_256, stored_key(SHA_256, key), auth_message(bare, answer, without_proof))
    return ours, f"{without_proof},p={to_base64(xor(key, signature))}".encode()


@pytest.mark.parametrize(
    ("first", "binding", "is_right"),
    [
        ("n,,n=alice,r=x", "n,,", True),
        ("y,,n=alice,r=x", "y,,", True),
        ("n,a=alice,n=alice,r=x", "n,a=alice,", True),
        ("n,,n=alice,r=x", "y,,", False),
        ("y,,n=alice,r=x", "n,,", False),
        ("y,,n=alice,r=x", "", False),
        ("y,,n=alice,r=x", "p=tls-unique,,", False),
        ("n,a=alice,n=alice,r=x", "n,,", False),
        ("n,,n=alice,r=x", "n,a=alice,", False),
    ],
)
def test_the_last_message_repeats_how_the_first_one_began(first: str, binding: str, is_right: bool) -> None:
    """The client's last message repeats the beginning of its first message, because a man in the middle could otherwise
    change the channel binding (RFC 5802).
    """
    ours, last = last_message(first, to_base64(binding.encode()))
    if is_right:
        assert ours.step(last, NOW).user == "alice"
    else:
        with pytest.raises(Refused):
            ours.step(last, NOW)


def test_an_extension_that_must_be_understood_is_refused_and_others_are_skipped() -> None:
    for first in ("n,,m=x,n=alice,r=x", "n,,n=alice,r=x,m=x"):
        with pytest.raises(Refused):
            scram().step(first.encode(), NOW)
    ours, last = last_message("n,,n=alice,r=x", "biws", ",m=x")
    with pytest.raises(Refused):
        ours.step(last, NOW)
    ours, last = last_message("n,,n=alice,r=x,tokenauth=true", "biws", ",e=x")
    assert ours.step(last, NOW).user == "alice"
    theirs = client()
    theirs.first()
    with pytest.raises((MalformedMessage, AuthenticationFailed)):
        theirs.answer(scram().step(b"n,,n=alice,r=client-nonce", NOW).token + b",m=x")


def test_the_last_nonce_must_be_the_servers() -> None:
    """If the nonce were not checked, an observer of one exchange could replay its last message in another exchange
    (CVE-2024-56128).
    """
    theirs, ours = client(), scram()
    proof = theirs.answer(ours.step(theirs.first(), NOW).token)
    assert proof is not None
    later = scram()
    later.step(client().first(), NOW)
    forged = proof.replace(b"server-nonce", b"another-nonce")
    with pytest.raises(Refused, match="invalid credentials") as raised:
        later.step(forged, NOW)
    assert "nonce" in raised.value.reason


@pytest.mark.parametrize(
    "token",
    [b"", b"n,,", b"n,,n=alice", b"p=tls-unique,,n=alice,r=x", b"n,a=bob,n=alice,r=x", b"n,,n=,r=x", b"n,,n=a=b,r=x",
     b"n,,n=alice,r=", b"n,,m=ext,n=alice,r=x", b"\xff"],
)  # fmt: skip
def test_malformed_first_tokens_are_refused(token: bytes) -> None:
    with pytest.raises(Refused):
        scram().step(token, NOW)


@given(st.binary(max_size=80))
def test_any_bytes_as_a_token_are_only_refused(token: bytes) -> None:
    for machine in (scram(), PlainMechanism({}), OAuthExchange(TokenRules(lambda _: None))):
        with pytest.raises(Refused):
            machine.step(token, NOW)
            machine.step(token, NOW)
    begun = scram()
    begun.step(client().first(), NOW)
    with pytest.raises(Refused):
        begun.step(token, NOW)


def test_our_client_trusts_nobody_who_does_not_know_the_password() -> None:
    for wrong in (b"r=client-nonce,s=MDEy,i=4096", b"r=other,s=MDEy,i=4096", b"r=client-nonceX,s=MDEy,i=100", b"x",
                  b"r=client-nonceX,s=MDEy,i=1000000"):  # fmt: skip
        with pytest.raises(AuthenticationFailed):
            client().answer(wrong)
    theirs = client()
    assert theirs.answer(scram().step(theirs.first(), NOW).token)
    with pytest.raises(AuthenticationFailed, match="may be an impostor"):
        theirs.answer(b"v=AAAA")


def test_stored_credentials_have_kafkas_form_and_show_no_password() -> None:
    credential = KNOWN[SHA_512]
    assert parse_credential(credential.format()) == credential
    assert credential.format().startswith("salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=")
    assert "stored" not in repr(credential)
    with pytest.raises(ValueError, match="no SCRAM credential"):
        parse_credential("salt=x")


# --- OAUTHBEARER

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwks() -> bytes:
    keys = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "r"},
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())), "kid": "e"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kty": "new-kind", "kid": "x"},
    ]
    return json.dumps({"keys": keys}).encode()


KEYS = parse_keys(jwks())
CLAIMS = {"sub": "alice", "exp": NOW + 100, "iss": "https://idp", "aud": ["kafka", "other"]}


def ask(token: str, **rules: Any) -> Step:
    return OAuthExchange(TokenRules(KEYS.get, **rules)).step(OAuthClient(token).first(), NOW)


def test_a_token_signed_by_a_known_key_is_accepted() -> None:
    step = ask(jwt.encode(CLAIMS, RSA, "RS256", {"kid": "r"}), audience=("kafka",), issuer="https://idp")
    assert (step.user, step.expires_s, step.token) == ("alice", NOW + 100, b"")
    assert ask(jwt.encode(CLAIMS, EC, "ES256", {"kid": "e"})).user == "alice"
    named = jwt.encode({**CLAIMS, "client": "bob"}, EC, "ES256", {"kid": "e"})
    assert ask(named, subject_claim="client").user == "bob"


def test_secrets_that_are_shared_are_no_public_keys() -> None:
    assert set(KEYS) == {"r", "e"}


@pytest.mark.parametrize(
    "malformed",
    [
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": None, "y": 1},
        {"kty": 5},
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())), "kid": ["a list"]},
    ],
)
def test_a_malformed_key_does_not_take_the_others_with_it(malformed: dict[str, Any]) -> None:
    good = json.loads(jwks())["keys"]
    assert set(parse_keys(json.dumps({"keys": [malformed, *good]}).encode())) == {"r", "e"}


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({"exp": NOW - 31}, {}),
        ({"exp": None}, {}),
        ({"exp": "soon"}, {}),
        ({"exp": True}, {}),
        ({"exp": math.nan}, {}),
        ({"exp": math.inf}, {}),
        ({"exp": 1e300}, {}),
        ({"exp": 10**400}, {}),
        ({"nbf": math.nan}, {}),
        ({"nbf": NOW + 31}, {}),
        ({"sub": ""}, {}),
        ({"aud": "somebody"}, {"audience": ("kafka",)}),
        ({"iss": "https://evil"}, {"issuer": "https://idp"}),
    ],
)
def test_tokens_with_false_claims_are_refused(claims: dict[str, Any], rules: dict[str, Any]) -> None:
    wanted = {key: value for key, value in {**CLAIMS, **claims}.items() if value is not None}
    refused_by_challenge(jwt.api_jws.encode(json.dumps(wanted).encode(), RSA, "RS256", {"kid": "r"}), **rules)


@pytest.mark.parametrize(
    "token",
    [
        jwt.encode(CLAIMS, RSA, "RS256", {"kid": "e"}),
        jwt.encode(CLAIMS, RSA, "RS256", {"kid": "unknown"}),
        jwt.encode(CLAIMS, RSA, "RS256"),
        jwt.encode(CLAIMS, None, "none"),
        jwt.encode(CLAIMS, "k" * 64, "HS256", {"kid": "r"}),
        jwt.encode(CLAIMS, rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", {"kid": "r"}),
        "a.b.c",
        base64.urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=") + ".e30.c2ln",
        "nonsense",
    ],
)
def test_tokens_signed_by_unknown_keys_are_refused(token: str) -> None:
    refused_by_challenge(token)


def refused_by_challenge(token: str, **rules: Any) -> None:
    """Check that the error is sent as a challenge, and that the refusal follows the client's response (RFC 7628)."""
    exchange = OAuthExchange(TokenRules(KEYS.get, **rules))
    theirs = OAuthClient(token)
    challenge = exchange.step(theirs.first(), NOW)
    assert challenge.user is None
    assert json.loads(challenge.token) == {"status": "invalid_token"}
    answer = theirs.answer(challenge.token)
    assert answer is not None
    with pytest.raises(Refused) as raised:
        exchange.step(answer, NOW)
    assert raised.value.message == challenge.token.decode(), "the client shows the refusal, not the challenge"
    assert token not in raised.value.reason


def test_unsecured_tokens_are_accepted_only_where_allowed() -> None:
    token = jwt.encode(CLAIMS, None, "none")
    assert ask(token, allows_unsecured=True).user == "alice"
    signed_by_nobody = jwt.encode(CLAIMS, "k" * 64, "HS256")
    refused_by_challenge(signed_by_nobody, allows_unsecured=True)


def test_a_foreign_authorization_identity_is_refused() -> None:
    token = jwt.encode(CLAIMS, RSA, "RS256", {"kid": "r"})
    with pytest.raises(Refused, match="authorization id"):
        OAuthExchange(TokenRules(KEYS.get)).step(f"n,a=bob,\x01auth=Bearer {token}\x01\x01".encode(), NOW)
