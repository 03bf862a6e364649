"""Tests TLS and SASL with four client libraries: which clients are accepted or refused, and which requests an
unauthenticated client may send.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from foreign_clients import TIMEOUT_SECONDS, eventually
from raw_client import SIZE, RawClient
from secured_broker import (
    ADMIN,
    ADMIN_PASSWORD,
    CLIENTS,
    MECHANISMS,
    PASSWORD,
    USER,
    NotLetIn,
    SecuredBroker,
)
from tests.support.certificates import Certificate
from warm_commands import run_oncelog_text

from oncelog import Admin, Consumer, Producer, TopicPartition
from oncelog.admin.resources import ConfigResource
from oncelog.connection.sasl import ScramClient
from oncelog.errors import AuthenticationFailed, KafkaError
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog_protocol.scram import ScramMechanism

METADATA_VERSION = 9
IMPATIENT: dict[str, dict[str, Any]] = {
    "oncelog": {"max_block_ms": 3_000},
    "librdkafka": {"message_timeout_ms": 3_000},
    "aiokafka": {},
    "kafka-python": {"bootstrap_timeout_ms": 3_000},
}
"""Settings with which the client of each library stops retrying soon."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
    for secret in (PASSWORD, ADMIN_PASSWORD, "Traceback"):
        assert secret not in broker.logged


WAYS = [
    *(("SSL", None) for _ in range(1)),
    *(("SASL_SSL", mechanism) for mechanism in MECHANISMS),
    *(pytest.param("SASL_PLAINTEXT", mechanism, marks=pytest.mark.soak) for mechanism in MECHANISMS),
]


@pytest.mark.parametrize("library", CLIENTS)
@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_every_client_gets_in_by_every_mechanism(
    secured: SecuredBroker, library: str, listener: str, mechanism: str | None, topic: str
) -> None:
    settings = secured.settings(listener, mechanism)
    assert CLIENTS[library](secured.address(listener), topic, settings) == b"hello"


@pytest.mark.parametrize("library", CLIENTS)
@pytest.mark.parametrize(
    "mechanism",
    ["SCRAM-SHA-256", *(pytest.param(each, marks=pytest.mark.soak) for each in MECHANISMS if each != "SCRAM-SHA-256")],
)
def test_a_wrong_password_is_refused(secured: SecuredBroker, library: str, mechanism: str, topic: str) -> None:
    with pytest.raises(NotLetIn):
        CLIENTS[library](
            secured.address("SASL_PLAINTEXT"),
            topic,
            {**secured.settings("SASL_PLAINTEXT", mechanism, password="wrong"), **IMPATIENT[library]},
        )


def test_a_refusal_reveals_no_details(secured: SecuredBroker) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        said = []
        for user in (USER, "nobody"):
            settings = secured.settings("SASL_SSL", mechanism, user=user, password="guessed-password")
            with pytest.raises(AuthenticationFailed) as raised:
                asyncio.run(list_topics(secured.address("SASL_SSL"), settings))
            said.append(raised.value.message)
        assert said[0] == said[1], "who exists is not said"
        assert "invalid" in said[0].lower()
    eventually(lambda: "authentication failed" in secured.logged, "the refusal is logged")
    assert "guessed-password" not in secured.logged


async def list_topics(address: str, settings: dict[str, Any]) -> list[str]:
    async with Admin(address, **settings) as admin:
        return await admin.list_topics()


# --- certificates


@pytest.mark.parametrize("library", CLIENTS)
def test_mutual_tls_authenticates_clients(secured: SecuredBroker, library: str, topic: str, tmp_path: Path) -> None:
    settings = {**secured.settings("SSL"), **shown(secured.authority.issue(("CN", USER)), tmp_path)}
    assert CLIENTS[library](secured.address("SSL"), topic, settings) == b"hello"


@pytest.mark.parametrize(
    "library", ["oncelog", *(pytest.param(each, marks=pytest.mark.soak) for each in CLIENTS if each != "oncelog")]
)
@pytest.mark.parametrize("kind", ["foreign", "expired"])
def test_untrusted_client_certificates_are_refused(
    secured: SecuredBroker, library: str, kind: str, topic: str, tmp_path: Path
) -> None:
    authority = Certificate.authority("somebody else") if kind == "foreign" else secured.authority
    shows = shown(authority.issue(("CN", USER), age=timedelta(hours=2 if kind == "expired" else 0)), tmp_path)
    with pytest.raises(NotLetIn):
        CLIENTS[library](secured.address("SSL"), topic, {**secured.settings("SSL"), **shows, **IMPATIENT[library]})


def shown(certificate: Certificate, directory: Path) -> dict[str, str]:
    (directory / "client.key").write_text(certificate.key_pem())
    (directory / "client.pem").write_text(certificate.pem)
    return {"ssl_certfile": str(directory / "client.pem"), "ssl_keyfile": str(directory / "client.key")}


def test_our_client_does_not_talk_to_brokers_that_it_does_not_trust(secured: SecuredBroker, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(Certificate.authority("somebody else").pem)
    settings = {"security_protocol": "SSL", "ssl_cafile": str(other)}
    with pytest.raises(AuthenticationFailed, match="certificate is not accepted"):
        asyncio.run(list_topics(secured.address("SSL"), settings))


def test_certificates_change_without_a_restart(secured: SecuredBroker) -> None:
    def common_name() -> str:
        with (
            socket.create_connection(("127.0.0.1", secured.port("SSL")), TIMEOUT_SECONDS) as plain,
            secured.client_context().wrap_socket(plain, server_hostname="localhost") as shaken,
        ):
            certificate = shaken.getpeercert()
            assert certificate is not None
            return str(certificate["subject"][-1][0][1])

    assert common_name() == "broker"
    secured.authority.issue(("CN", "renewed")).store(secured.store_file)
    eventually(lambda: common_name() == "renewed", "the new certificate is shown")


# --- requests of an unauthenticated client


def raw(secured: SecuredBroker, listener: str = "SASL_PLAINTEXT") -> RawClient:
    return RawClient(secured.port(listener))


def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.call(SaslHandshakeRequest(mechanism=mechanism), ApiKey.SASL_HANDSHAKE, version)


def authenticate(client: RawClient, token: bytes, version: int = 1) -> Any:
    return client.call(SaslAuthenticateRequest(auth_bytes=token), ApiKey.SASL_AUTHENTICATE, version)


TOKEN = f"\0{USER}\0{PASSWORD}".encode()


def test_no_other_request_is_decoded_before_the_login(secured: SecuredBroker) -> None:
    header = b"\0\1c"
    for key, served in SERVED.items():
        with raw(secured) as client:
            nonsense = (
                key.to_bytes(2, "big") + served.versions.high.to_bytes(2, "big") + b"\0\0\0\7" + header + b"\xff" * 9
            )
            if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
                continue
            client.socket.sendall(SIZE.pack(len(nonsense)) + nonsense)
            assert client.socket.recv(1) == b"", ApiKey(key).name
    with raw(secured) as client:
        assert client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0).error_code == 0
        from_the_future = b"\0\x12\0\x63\0\0\0\7\xff\xff"
        answer = client.exchange(SIZE.pack(len(from_the_future)) + from_the_future)
        assert answer[4:6] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"), "an answer, not the end (T2)"
        assert handshake(client).mechanisms == list(MECHANISMS)


def test_frames_are_small_before_the_login_and_large_after_it(secured: SecuredBroker) -> None:
    with raw(secured) as client:
        client.socket.sendall(SIZE.pack(600_000))
        assert client.socket.recv(1) == b""
    with raw(secured) as client:
        handshake(client)
        assert authenticate(client, TOKEN).error_code == 0
        client.socket.sendall(SIZE.pack(600_000) + b"\0\3\0\0\0\0\0\0\0\0")
        with pytest.raises(TimeoutError):
            client.socket.settimeout(0.3)
            client.socket.recv(1)


def test_raw_tokens_are_accepted_after_handshake_version_0(secured: SecuredBroker) -> None:
    with raw(secured) as client:
        handshake(client, version=0)
        assert client.exchange(SIZE.pack(len(TOKEN)) + TOKEN) == b""
        assert client.call(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION).brokers
    with raw(secured) as client:
        scram = ScramClient(ScramMechanism.SCRAM_SHA_256, ADMIN, ADMIN_PASSWORD, "nonce")
        handshake(client, "SCRAM-SHA-256", version=0)
        first = scram.first()
        proof = scram.answer(client.exchange(SIZE.pack(len(first)) + first))
        assert proof is not None
        assert scram.answer(client.exchange(SIZE.pack(len(proof)) + proof)) is None
        assert client.call(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION).brokers
    with raw(secured) as client:
        handshake(client, version=0)
        client.socket.sendall(SIZE.pack(4) + b"\0a\0b")
        assert client.socket.recv(1) == b"", "before SaslAuthenticate there is no way to say why"


def test_a_refusal_is_told_and_then_the_connection_closes(secured: SecuredBroker) -> None:
    with raw(secured) as client:
        handshake(client)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0no"), ApiKey.SASL_AUTHENTICATE, 1)
        # the broker must not handle this request, because the login failed
        client.send(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION)
        answer = client.receive()
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert client.socket.recv(1) == b""
    with raw(secured) as client:
        answer = handshake(client, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))
        assert client.socket.recv(1) == b""


def test_a_login_on_a_listener_without_sasl_is_an_illegal_state(secured: SecuredBroker) -> None:
    with raw(secured, "PLAINTEXT") as client:
        assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert authenticate(client, TOKEN).error_code == ErrorCode.ILLEGAL_SASL_STATE
    with raw(secured) as client:
        handshake(client)
        assert authenticate(client, TOKEN).error_code == 0
        assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE, "once and for all"
        assert client.call(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION).brokers


def test_a_plaintext_client_on_a_tls_port_is_refused(secured: SecuredBroker) -> None:
    with raw(secured, "SSL") as client, pytest.raises(ConnectionError):
        client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    said = "no TLS: is its security.protocol that of the listener SSL?"
    eventually(lambda: said in secured.logged, "it is logged")


@pytest.mark.parametrize("junk", [b"\xff" * 100_000, b"\0\0\0\x05" + b"x" * 100_000], ids=["no frame", "no request"])
def test_bytes_after_a_malformed_request_are_ignored(secured: SecuredBroker, junk: bytes) -> None:
    """The fixture then searches the broker's log for tracebacks."""
    with (
        socket.create_connection(("127.0.0.1", secured.port("SSL")), TIMEOUT_SECONDS) as plain,
        secured.client_context().wrap_socket(plain, server_hostname="localhost") as client,
        suppress(OSError),
    ):  # the broker may close the connection before all bytes are sent
        client.sendall(junk)
        assert client.recv(1) == b""


def test_secrets_are_not_described(secured: SecuredBroker) -> None:
    async def described() -> dict[str, Any]:
        async with Admin(secured.address("PLAINTEXT")) as admin:
            resource = ConfigResource.broker(1)
            return dict((await admin.describe_configs([resource]))[resource])

    configs = asyncio.run(described())
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    assert (configs[name].value, configs[name].is_sensitive) == (None, True)
    assert configs["listener.name.ssl.ssl.client.auth"].value == "requested"
    assert not any(PASSWORD in str(entry) or ADMIN_PASSWORD in str(entry) for entry in configs.values())


# --- TLS must behave like TCP


def test_a_large_answer_arrives_whole(secured: SecuredBroker, topic: str) -> None:
    async def there_and_back() -> int:
        settings = secured.settings("SSL")
        value = b"x" * 900_000
        async with Producer(secured.address("SSL"), **settings, max_request_size=1 << 20) as producer:
            for _ in range(12):
                await producer.send(topic, value)
        received = 0
        async with Consumer(
            secured.address("SSL"), **settings, auto_offset_reset="earliest", max_partition_fetch_bytes=50 << 20
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            async for record in consumer:
                assert record.value == value
                received += 1
                if received == 12:
                    return received
        return received

    assert asyncio.run(asyncio.wait_for(there_and_back(), TIMEOUT_SECONDS)) == 12


def test_a_client_that_disconnects_without_awaiting_answers_has_sent_all_records(
    secured: SecuredBroker, topic: str
) -> None:
    async def sent() -> int:
        settings = secured.settings("SASL_SSL", "SCRAM-SHA-512")
        async with Producer(secured.address("SASL_SSL"), **settings) as producer:
            await (await producer.send(topic, b"makes the topic"))
        async with Producer(secured.address("SASL_SSL"), **settings, acks=0, batch_size=1000) as producer:
            for number in range(2000):
                await producer.send(topic, b"%d" % number)
        async with Admin(secured.address("SASL_SSL"), **settings) as admin:
            found = await admin.list_offsets({TopicPartition(topic, 0): -1})
            return found[TopicPartition(topic, 0)].offset

    assert asyncio.run(asyncio.wait_for(sent(), TIMEOUT_SECONDS)) == 2001


def test_a_client_that_sends_no_more_gets_its_answers(secured: SecuredBroker) -> None:
    """In TLS 1.3 each direction of a connection is closed separately, as in TCP."""
    from raw_client import frame

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = secured.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", secured.port("SSL")), TIMEOUT_SECONDS) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
        for number in range(50):
            tls.write(frame(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION, number))
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        plain.sendall(outgoing.read())
        plain.shutdown(socket.SHUT_WR)
        received = b""
        while data := plain.recv(1 << 16):
            incoming.write(data)
        while True:
            try:
                part = tls.read(1 << 16)
            except ssl.SSLError:
                break
            if not part:
                break
            received += part
    answers = 0
    while received:
        (size,) = SIZE.unpack_from(received)
        received = received[4 + size :]
        answers += 1
    assert answers == 50


# --- reauthentication, and users


def test_a_client_logs_in_again_while_it_works(tmp_path: Path, topic: str) -> None:
    async def work(broker: SecuredBroker) -> bool:
        """Produce over several logins, and return whether the connection remained the same."""
        address = f"127.0.0.1:{broker.process.port}"
        async with Producer(address, **broker.settings("SASL_PLAINTEXT", "SCRAM-SHA-256")) as producer:
            await (await producer.send(topic, b"first"))
            (connection,) = {
                link.connection for link in producer._sender._pool._links.values() if link.connection is not None
            }
            logins = 0
            original = connection.log_in

            async def counted(login: Any) -> None:
                nonlocal logins
                await original(login)
                logins += 1

            connection.log_in = counted  # type: ignore[method-assign]
            offsets = []
            while logins < 3 and connection.is_open:
                offsets.append((await (await producer.send(topic, b"more"))).offset)
            assert offsets == list(range(1, len(offsets) + 1))
            return connection.is_open

    # The second attempt has a longer session, because a busy machine may be blocked for the rest of a short session at
    # the moment of the reauthentication.
    for session_ms in (1500, 10_000):
        settings = {"connections.max.reauth.ms": str(session_ms), "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
        directory = tmp_path / str(session_ms)
        directory.mkdir()
        with SecuredBroker(directory, settings) as broker:
            if asyncio.run(asyncio.wait_for(work(broker), TIMEOUT_SECONDS)):
                return
    pytest.fail("the client did not log in in time")


def test_s93_keys_of_tokens_are_followed_whatever_the_provider_answers(tmp_path: Path) -> None:
    """The identity provider fails at the broker's start and later; in an earlier release, a response that was not HTTP
    stopped the updates of keys permanently.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        answers = [b"nonsense\r\n\r\n"]
        broker = SecuredBroker(
            tmp_path,
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"http://127.0.0.1:{listening.getsockname()[1]}/",
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
            },
        )
        asked = threading.Semaphore(0)

        def provide() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client:
                        client.recv(65536)
                        client.sendall(answers[-1])
                    asked.release()

        threading.Thread(target=provide, daemon=True).start()
        keys = (tmp_path / "jwks.json").read_bytes()

        def gets_in() -> bool:
            with RawClient(broker.process.port) as client:
                client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), ApiKey.SASL_HANDSHAKE, 1)
                token = f"n,,\x01auth=Bearer {broker.token()}\x01\x01".encode()
                answer = authenticate(client, token)
                return answer.error_code == 0 and not answer.auth_bytes

        with broker:
            assert not gets_in(), "it has started without keys"
            answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(keys), keys))
            eventually(gets_in, "the keys are read after all")
            revoked = b'{"keys": []}'
            answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + revoked)
            for _ in range(50):  # do not count the provider's requests that were already in progress
                if not asked.acquire(blocking=False):
                    break
            for _ in range(3):
                assert asked.acquire(timeout=TIMEOUT_SECONDS), "nobody asks any more"
            assert gets_in(), "an answer that breaks off changes nothing"
            answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(revoked), revoked))
            eventually(lambda: not gets_in(), "a revoked key is believed no longer")
        assert "Traceback" not in broker.logged


def test_a_client_that_does_not_re_authenticate_is_disconnected(tmp_path: Path) -> None:
    settings = {"connections.max.reauth.ms": "200", "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with SecuredBroker(tmp_path, settings) as broker, RawClient(broker.process.port) as client:
        handshake(client)
        assert authenticate(client, TOKEN).session_lifetime_ms == 200

        def asked() -> bool:
            try:
                client.call(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION)
            except ConnectionError:
                return True
            return False

        eventually(asked, "the connection is cut")


def test_users_are_managed_by_the_command_line(secured: SecuredBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{ADMIN}" password="{ADMIN_PASSWORD}";\n'
        f"ssl.truststore.location={secured.authority_file}\n"
        "ssl.truststore.type=PEM\n"
    )

    def command(*arguments: str, told: str = "") -> str:
        run = run_oncelog_text(
            *arguments, "--command-config", str(config), "-b", secured.address("SASL_SSL"), stdin=told
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    command("users", "set", "carol/ü", "--password-file", "-", "--mechanism", "SCRAM-SHA-256", told="carols\n")
    assert "carol/ü\tSCRAM-SHA-256\t4096" in command("users", "list", "--output", "plain").splitlines()
    settings = secured.settings("SASL_SSL", "SCRAM-SHA-256", user="carol/ü", password="carols")
    assert asyncio.run(list_topics(secured.address("SASL_SSL"), settings)) is not None
    command("users", "remove", "carol/ü")
    with pytest.raises(KafkaError):
        asyncio.run(list_topics(secured.address("SASL_SSL"), settings))
    assert "answers" in command("ping")
