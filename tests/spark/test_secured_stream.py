"""Tests a stream from topic to topic of a cluster that requires TLS and a login, with Kafka's own options."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from secured_broker import PASSWORD, USER, SecuredBroker
from streams import again_if_late

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition

ROWS = 40
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'


def options(broker: SecuredBroker) -> dict[str, str]:
    """Return the options that a user of Spark's own connector would set, including the option that enables TLS."""
    return {
        "kafka.bootstrap.servers": broker.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.authority_file),
    }


async def fill(broker: SecuredBroker, topic: str, target: str) -> None:
    address = broker.address("PLAINTEXT")
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1), NewTopic(target, 1)])
    async with Producer(address) as producer:
        for number in range(ROWS):
            await producer.send(topic, b"%d" % number)


async def written(broker: SecuredBroker, target: str) -> Counter[bytes]:
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(broker.address("PLAINTEXT"), **settings) as consumer:
        partition = TopicPartition(target, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found: Counter[bytes] = Counter()
        async with asyncio.timeout(60):
            while await consumer.position(partition) < end:
                for records in (await consumer.poll(200)).values():
                    found.update(bytes(record.value or b"") for record in records)
    return found


class TokenEndpoint:
    """An HTTP server that returns a token of the broker's user for each request of a client that knows the secret."""

    CLIENT, SECRET, SCOPE = "pipeline", "of the pipeline", "orders"

    def __init__(self, broker: SecuredBroker) -> None:
        self._broker = broker
        self.given = 0
        self.refused = 0
        self.url = ""

    def answer(self, authorization: str, form: dict[str, list[str]]) -> str | None:
        """Return a token; None if the client is unknown, or the request is no token request."""
        credentials = base64.b64encode(f"{self.CLIENT}:{self.SECRET}".encode()).decode()
        wanted = {"grant_type": ["client_credentials"], "scope": [self.SCOPE]}
        if authorization != f"Basic {credentials}" or form != wanted:
            self.refused += 1
            return None
        self.given += 1
        return self._broker.token(USER)

    @contextmanager
    def serving(self) -> Iterator[TokenEndpoint]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                token = endpoint.answer(self.headers["Authorization"], urllib.parse.parse_qs(form))
                self.send_response(401 if token is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps({"access_token": token, "expires_in": 600}).encode())

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/token"
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield self
            server.shutdown()
            thread.join()


def oauth_options(broker: SecuredBroker, endpoint: TokenEndpoint, secret: str = TokenEndpoint.SECRET) -> dict[str, str]:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    return options(broker) | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'{module} clientId="{endpoint.CLIENT}" clientSecret="{secret}" scope="orders";',
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }


def java_truststore(broker: SecuredBroker) -> dict[str, str]:
    """Use Java's keytool to create a truststore with the certificate authority, and return its options; empty if there
    is no keytool.
    """
    keytool = shutil.which("keytool")
    if keytool is None:
        return {}
    store = broker.directory / "truststore.jks"
    made = [keytool, "-importcert", "-noprompt", "-alias", "authority", "-storetype", "JKS", "-storepass", "changeit"]
    command = [*made, "-file", str(broker.authority_file), "-keystore", str(store)]
    subprocess.run(command, check=True, capture_output=True)
    return {
        "kafka.ssl.truststore.type": "JKS",
        "kafka.ssl.truststore.location": str(store),
        "kafka.ssl.truststore.password": "changeit",
    }


def stream(spark: Any, secured: dict[str, str], topic: str, target: str, checkpoint: str) -> None:
    """Stream from topic to topic until all records are read."""

    def run() -> None:
        reads = secured | {"subscribe": topic, "startingOffsets": "earliest"}
        table = spark.readStream.format("oncelog").options(**reads).load()
        writer = table.select("value").writeStream.format("oncelog").options(**secured)
        writer = writer.option("topic", target).option("checkpointLocation", checkpoint).outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()

    again_if_late(run)


@pytest.mark.timeout(300)
def test_a_stream_runs_over_sasl_ssl(spark: Any, topic: str, checkpoint: str, tmp_path: Path) -> None:
    target = f"{topic}-out"
    with SecuredBroker(tmp_path) as broker:
        asyncio.run(fill(broker, topic, target))
        stream(spark, options(broker), topic, target, checkpoint)
        assert asyncio.run(written(broker, target)) == Counter(b"%d" % number for number in range(ROWS))
        assert "Traceback" not in broker.logged


@pytest.mark.timeout(300)
def test_a_stream_uses_tokens_of_an_endpoint(spark: Any, topic: str, checkpoint: str, tmp_path: Path) -> None:
    """The driver and the tasks request OAUTHBEARER tokens with client credentials; a wrong secret is reported."""
    target = f"{topic}-out"
    with SecuredBroker(tmp_path) as broker, TokenEndpoint(broker).serving() as endpoint:
        asyncio.run(fill(broker, topic, target))
        with pytest.raises(Exception, match=rf"{endpoint.url} answered 401 to client 'pipeline'"):
            stream(spark, oauth_options(broker, endpoint, "wrong"), topic, target, checkpoint)
        assert endpoint.refused
        assert not endpoint.given
        secured = oauth_options(broker, endpoint) | java_truststore(broker)
        stream(spark, secured, topic, target, checkpoint)
        assert asyncio.run(written(broker, target)) == Counter(b"%d" % number for number in range(ROWS))
        assert endpoint.given >= 2
