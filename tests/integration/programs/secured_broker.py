"""Runs a broker with all four security protocols, and clients of four libraries that log in to it."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import ssl
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import jwt
from broker_process import BrokerProcess
from cryptography.hazmat.primitives.asymmetric import ec
from foreign_clients import TIMEOUT_SECONDS
from tests.support.certificates import Certificate

LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "in wonder=land"
ADMIN, ADMIN_PASSWORD = "admin", "adminsecret"
TIMEOUT_MS: Final = int(TIMEOUT_SECONDS * 1000)


class SecuredBroker:
    """A broker with a certificate authority, which has signed the broker's certificate, and a key that signs tokens."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None, log_level: str = "info") -> None:
        self.authority = Certificate.authority()
        self.directory = directory
        self.authority_file = directory / "authority.pem"
        self.authority_file.write_text(self.authority.pem)
        self.store_file = directory / "broker.pem"
        self.authority.issue(("O", "oncelog"), ("CN", "broker")).store(self.store_file)
        self.token_key = ec.generate_private_key(ec.SECP256R1())
        keys = [{**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.token_key.public_key())), "kid": "k"}]
        jwks = directory / "jwks.json"
        jwks.write_text(json.dumps({"keys": keys}))
        users = f'user_{USER}="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}"'
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        self.process = BrokerProcess(
            directory / "data",
            {
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
                "ssl.keystore.location": str(self.store_file),
                "ssl.truststore.location": str(self.authority_file),
                "listener.name.ssl.ssl.client.auth": "requested",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {users};",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} {users};",
                "sasl.scram.first.users": f"{ADMIN}={ADMIN_PASSWORD},{USER}={PASSWORD}",
                "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
                "sasl.oauthbearer.expected.audience": "oncelog",
                **(settings or {}),
            },
            log_level=log_level,
        )

    def __enter__(self) -> SecuredBroker:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def port(self, listener: str) -> int:
        ports = re.findall(r"127\.0\.0\.1:(\d+)", self.process.start_line)
        return int(ports[LISTENERS.index(listener)])

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.port(listener)}"

    @property
    def logged(self) -> str:
        return self.process.log.read_text()

    def token(self, subject: str = USER, seconds: float = 600.0, audience: str = "oncelog") -> str:
        claims = {"sub": subject, "exp": time.time() + seconds, "aud": audience}
        return jwt.encode(claims, self.token_key, "ES256", {"kid": "k"})

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority_file))

    def settings(
        self, listener: str, mechanism: str | None = None, user: str = USER, password: str = PASSWORD
    ) -> dict[str, Any]:
        """Return settings of oncelog's own client, from which the settings of the other libraries are created."""
        settings: dict[str, Any] = {"security_protocol": listener}
        if listener.endswith("SSL"):
            settings["ssl_cafile"] = str(self.authority_file)
        if mechanism == "OAUTHBEARER":
            token = self.token(user) if password == PASSWORD else self.token(user, audience="somebody else")
            settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": lambda: token}
        elif mechanism is not None:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        return settings


class NotLetIn(Exception):
    """The client reports that its login was refused, or that it does not trust the broker."""


def oncelog(address: str, topic: str, settings: dict[str, Any]) -> bytes:
    from oncelog import Consumer, Producer, TopicPartition
    from oncelog.errors import AuthenticationFailed, ConnectionFailed

    async def there_and_back() -> bytes:
        async with Producer(address, **settings) as producer:
            await (await producer.send(topic, b"hello"))
        async with Consumer(address, **settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            async for record in consumer:
                return bytes(record.value or b"")
        raise AssertionError("no record")

    try:
        return asyncio.run(asyncio.wait_for(there_and_back(), TIMEOUT_SECONDS))
    except (AuthenticationFailed, ConnectionFailed) as error:
        raise NotLetIn(error) from error


def librdkafka(address: str, topic: str, settings: dict[str, Any]) -> bytes:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    refusals: list[KafkaError] = []

    def on_error(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            refusals.append(error)

    common: dict[str, Any] = {
        "bootstrap.servers": address,
        "error_cb": on_error,
        "security.protocol": settings["security_protocol"],
        "message.timeout.ms": settings.get("message_timeout_ms", TIMEOUT_MS),
    }
    for ours, theirs in (
        ("ssl_cafile", "ssl.ca.location"),
        ("ssl_certfile", "ssl.certificate.location"),
        ("ssl_keyfile", "ssl.key.location"),
        ("sasl_mechanism", "sasl.mechanism"),
        ("sasl_plain_username", "sasl.username"),
        ("sasl_plain_password", "sasl.password"),
    ):
        if ours in settings:
            common[theirs] = settings[ours]
    provider = settings.get("sasl_oauth_token_provider")
    if provider is not None:
        common["oauth_cb"] = lambda _: (provider(), time.time() + 600)
    producer = Producer(common)
    placed: list[Any] = []
    producer.produce(topic, b"hello", on_delivery=lambda error, message: placed.append(error or message))
    until = time.monotonic() + TIMEOUT_SECONDS
    while not placed and not refusals and time.monotonic() < until:
        producer.poll(0.05)
    if refusals:
        producer.purge()
        producer.flush()
        raise NotLetIn(refusals[0])
    if placed and isinstance(placed[0], KafkaError):
        raise NotLetIn(placed[0])  # with TLS 1.3 a client sees the refusal only after its handshake
    del common["message.timeout.ms"]
    consumer = Consumer({**common, "group.id": topic, "enable.auto.commit": False})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < until:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return bytes(message.value() or b"")
    raise AssertionError("no record")


def aiokafka(address: str, topic: str, settings: dict[str, Any]) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    theirs = {key: value for key, value in settings.items() if not key.startswith("ssl_")}
    if "ssl_cafile" in settings:
        context = ssl.create_default_context(cafile=settings["ssl_cafile"])
        if "ssl_certfile" in settings:
            context.load_cert_chain(settings["ssl_certfile"], settings.get("ssl_keyfile"))
        theirs["ssl_context"] = context
    provider = settings.get("sasl_oauth_token_provider")
    if provider is not None:

        class Provider(AbstractTokenProvider):
            async def token(self) -> str:
                return str(provider())

        theirs["sasl_oauth_token_provider"] = Provider()

    async def there_and_back() -> bytes:
        producer = AIOKafkaProducer(bootstrap_servers=address, **theirs)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"hello")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", **theirs)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            return bytes((await consumer.getone()).value or b"")
        finally:
            await consumer.stop()

    try:
        return asyncio.run(asyncio.wait_for(there_and_back(), TIMEOUT_SECONDS))
    except KafkaError as error:
        raise NotLetIn(error) from error


def kafka_python(address: str, topic: str, settings: dict[str, Any]) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

    theirs = dict(settings)
    provider = settings.get("sasl_oauth_token_provider")
    if provider is not None:
        theirs["sasl_oauth_token_provider"] = _token_provider(provider)
    try:
        producer = KafkaProducer(bootstrap_servers=address, max_block_ms=TIMEOUT_MS, **theirs)
        with closing(producer):
            producer.send(topic, b"hello").get(TIMEOUT_SECONDS)
        consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", **theirs)
        with closing(consumer):
            consumer.assign([TopicPartition(topic, 0)])
            return bytes(next(consumer).value)
    except KafkaError as error:
        refusal = repr(error)
    _collect_its_connection()  # after the `except` block, because no traceback refers to the connection any more
    raise NotLetIn(refusal)


def _collect_its_connection() -> None:
    """If kafka-python gives up in its constructor, only the garbage collector closes the connection that it was
    opening, so collect garbage now.

    If the socket were collected later, pytest would report it in whichever test runs at that moment.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _token_provider(provide: Callable[[], str]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return provide()

    return Provider()


CLIENTS: Final[dict[str, Callable[[str, str, dict[str, Any]], bytes]]] = {
    "oncelog": oncelog,
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
