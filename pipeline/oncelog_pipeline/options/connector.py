"""A table of all options of Spark's own Kafka connector, which says how this connector handles each of them. Pure.

Each option belongs to one of three classes: it means the same as in Spark's connector; or its meaning differs as the
option's text says; or the connector refuses it when a query is planned, and gives the reason.
`docs/reference/spark-options.md` is generated from this table, and a test sets each option. `kafka.*` are the keys of
Java's consumer (for a source) and producer (for a sink), of Kafka 3.9 to 4.3; tests/data lists these keys as Kafka's
own classes print them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Side(Enum):
    """Where an option applies: source, sink or both."""

    SOURCE = "source"
    SINK = "sink"
    BOTH = "both"


class Answer(Enum):
    """How this connector handles an option."""

    SAME = "same"
    DIFFERS = "differs"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ConnectorOption:
    """An option of Spark's connector. `example` is a valid value; `text` says what differs, why it is refused, and what
    to use instead."""

    name: str
    side: Side
    answer: Answer
    text: str = ""
    example: str = ""


SOURCE, SINK, BOTH = Side.SOURCE, Side.SINK, Side.BOTH
SAME, DIFFERS, REFUSED = Answer.SAME, Answer.DIFFERS, Answer.REFUSED

_IN_CHECKPOINT: Final = "the progress of a query is in its checkpoint"
_GROUP: Final = "the source joins no group, so this option has no effect, as in the connector"
_JVM: Final = "this option names a class or a facility of Java"
_METRICS: Final = "Java's client metrics do not exist here; serve_query_metrics serves rows, lag and times of queries"
_SOCKET: Final = "sizes and ages of sockets are left to the operating system and the broker"
_OPENSSL: Final = "OpenSSL negotiates this setting; OpenSSL's configuration file (OPENSSL_CONF) can restrict it"
_KERBEROS: Final = "Kerberos (GSSAPI) is not supported: use PLAIN, SCRAM or OAUTHBEARER"
_REFRESH: Final = "the client renews a token at 80 % of its life, and repeats a failed login"
_ASSERTION: Final = (
    "tokens are requested with client credentials, or read from a file, but not requested with an assertion (JWT)"
)
_SHARE: Final = "share groups have no offsets at which a query could continue"
_BROKERS: Final = "this option is for brokers, which validate tokens; a client only requests a token"
_REPLACED: Final = "rows without a key and a partition are spread evenly and repeatably, so that a replay is the same"

OF_SPARK: Final = (
    ConnectorOption("subscribe", SOURCE, SAME, "", "orders,bills"),
    ConnectorOption("subscribePattern", SOURCE, DIFFERS, "a regular expression of Python's, for whole names", "ord.*"),
    ConnectorOption("assign", SOURCE, SAME, "", '{"orders":[0,1]}'),
    ConnectorOption("startingOffsets", SOURCE, SAME, "", "earliest"),
    ConnectorOption("startingTimestamp", SOURCE, SAME, "", "1000"),
    ConnectorOption("startingOffsetsByTimestamp", SOURCE, SAME, "", '{"orders":{"0":1000}}'),
    ConnectorOption("startingOffsetsByTimestampStrategy", SOURCE, SAME, "", "latest"),
    ConnectorOption("endingOffsets", SOURCE, SAME, "batch queries", "latest"),
    ConnectorOption("endingTimestamp", SOURCE, SAME, "batch queries", "1000"),
    ConnectorOption("endingOffsetsByTimestamp", SOURCE, SAME, "batch queries", '{"orders":{"0":1000}}'),
    ConnectorOption("failOnDataLoss", SOURCE, SAME, "", "false"),
    ConnectorOption("kafkaConsumer.pollTimeoutMs", SOURCE, SAME, "also for the first connection", "1000"),
    ConnectorOption("fetchOffset.numRetries", SOURCE, SAME, "", "3"),
    ConnectorOption("fetchOffset.retryIntervalMs", SOURCE, SAME, "", "10"),
    ConnectorOption("maxOffsetsPerTrigger", SOURCE, SAME, "", "100"),
    ConnectorOption("minOffsetsPerTrigger", SOURCE, SAME, "", "10"),
    ConnectorOption("maxTriggerDelay", SOURCE, SAME, "", "15m"),
    ConnectorOption("minPartitions", SOURCE, SAME, "", "10"),
    ConnectorOption("maxRecordsPerPartition", SOURCE, SAME, "", "1000"),
    ConnectorOption("groupIdPrefix", SOURCE, SAME, "a label in the broker's request log; no group is joined", "mine"),
    ConnectorOption(
        "includeHeaders", BOTH, SAME, "of a source, a column headers more; a sink writes that column anyway", "true"
    ),
    ConnectorOption("topic", SINK, SAME, "", "orders"),
    ConnectorOption("checkpointLocation", BOTH, SAME, "", "/checkpoints/orders"),
)

OF_EVERY_CLIENT: Final = (
    ConnectorOption("kafka.bootstrap.servers", BOTH, SAME, "", "127.0.0.1:9092"),
    ConnectorOption("kafka.client.id", BOTH, SAME, "", "me"),
    ConnectorOption("kafka.client.dns.lookup", BOTH, REFUSED, "all addresses of a name are tried"),
    ConnectorOption("kafka.connections.max.idle.ms", BOTH, REFUSED, _SOCKET),
    ConnectorOption("kafka.receive.buffer.bytes", BOTH, REFUSED, _SOCKET),
    ConnectorOption("kafka.send.buffer.bytes", BOTH, REFUSED, _SOCKET),
    ConnectorOption("kafka.socket.connection.setup.timeout.ms", BOTH, SAME, "", "10000"),
    ConnectorOption(
        "kafka.socket.connection.setup.timeout.max.ms",
        BOTH,
        REFUSED,
        "each attempt has kafka.socket.connection.setup.timeout.ms",
    ),
    ConnectorOption("kafka.metadata.max.age.ms", BOTH, SAME, "", "300000"),
    ConnectorOption("kafka.metadata.recovery.strategy", BOTH, SAME, "", "rebootstrap"),
    ConnectorOption(
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        BOTH,
        REFUSED,
        "the bootstrap servers are asked as soon as no known broker can be reached",
    ),
    ConnectorOption("kafka.reconnect.backoff.ms", BOTH, SAME, "", "50"),
    ConnectorOption("kafka.reconnect.backoff.max.ms", BOTH, SAME, "", "1000"),
    ConnectorOption("kafka.request.timeout.ms", BOTH, SAME, "", "30000"),
    ConnectorOption("kafka.retry.backoff.ms", BOTH, SAME, "", "100"),
    ConnectorOption("kafka.retry.backoff.max.ms", BOTH, SAME, "", "1000"),
    ConnectorOption("kafka.enable.metrics.push", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.auto.include.jmx.reporter", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.metric.reporters", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.metrics.num.samples", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.metrics.recording.level", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.metrics.sample.window.ms", BOTH, REFUSED, _METRICS),
    ConnectorOption("kafka.config.providers", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.interceptor.classes", BOTH, REFUSED, "interceptors are classes of Java"),
)

OF_SECURITY: Final = (
    ConnectorOption("kafka.security.protocol", BOTH, SAME, "", "PLAINTEXT"),
    ConnectorOption("kafka.security.providers", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.ssl.truststore.location", BOTH, SAME, "PEM, PKCS12 or JKS, by the content of the file"),
    ConnectorOption("kafka.ssl.truststore.password", BOTH, SAME),
    ConnectorOption("kafka.ssl.truststore.type", BOTH, SAME, "PEM, PKCS12 or JKS", "PEM"),
    ConnectorOption("kafka.ssl.truststore.certificates", BOTH, SAME, "PEM text"),
    ConnectorOption("kafka.ssl.keystore.location", BOTH, SAME, "as the truststore; of several keys, the first"),
    ConnectorOption("kafka.ssl.keystore.password", BOTH, SAME),
    ConnectorOption("kafka.ssl.keystore.type", BOTH, SAME, "PEM, PKCS12 or JKS", "PKCS12"),
    ConnectorOption("kafka.ssl.keystore.key", BOTH, SAME, "PEM text"),
    ConnectorOption("kafka.ssl.keystore.certificate.chain", BOTH, SAME, "PEM text"),
    ConnectorOption("kafka.ssl.key.password", BOTH, SAME, "", "secret"),
    ConnectorOption(
        "kafka.ssl.endpoint.identification.algorithm", BOTH, SAME, "https, or empty for no check of host names", ""
    ),
    ConnectorOption("kafka.ssl.protocol", BOTH, REFUSED, _OPENSSL),
    ConnectorOption("kafka.ssl.enabled.protocols", BOTH, REFUSED, _OPENSSL),
    ConnectorOption("kafka.ssl.cipher.suites", BOTH, REFUSED, _OPENSSL),
    ConnectorOption("kafka.ssl.provider", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.ssl.engine.factory.class", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.ssl.keymanager.algorithm", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.ssl.trustmanager.algorithm", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.ssl.secure.random.implementation", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.sasl.mechanism", BOTH, SAME, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", "PLAIN"),
    ConnectorOption(
        "kafka.sasl.jaas.config",
        BOTH,
        SAME,
        "PlainLoginModule and ScramLoginModule with username and password, OAuthBearerLoginModule with clientId,"
        " clientSecret and scope",
    ),
    *(
        ConnectorOption(
            f"kafka.sasl.oauthbearer.{each}",
            BOTH,
            SAME,
            f"wins over {of_jaas} of kafka.sasl.jaas.config, whose OAuthBearerLoginModule is still needed",
        )
        for each, of_jaas in (
            ("client.credentials.client.id", "clientId"),
            ("client.credentials.client.secret", "clientSecret"),
            ("scope", "scope"),
        )
    ),
    ConnectorOption("kafka.sasl.oauthbearer.token.endpoint.url", BOTH, SAME, "https, http, or file:///path of a token"),
    ConnectorOption(
        "kafka.sasl.login.callback.handler.class",
        BOTH,
        DIFFERS,
        "only Kafka's OAuthBearerLoginCallbackHandler, which is what is done here without it, too",
    ),
    ConnectorOption("kafka.sasl.login.connect.timeout.ms", BOTH, SAME, "of the token endpoint"),
    ConnectorOption("kafka.sasl.login.read.timeout.ms", BOTH, SAME, "of the token endpoint"),
    ConnectorOption("kafka.sasl.login.class", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.sasl.client.callback.handler.class", BOTH, REFUSED, _JVM),
    *(
        ConnectorOption(f"kafka.sasl.login.{each}", BOTH, REFUSED, _REFRESH)
        for each in (
            "refresh.buffer.seconds",
            "refresh.min.period.seconds",
            "refresh.window.factor",
            "refresh.window.jitter",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
        )
    ),
    *(
        ConnectorOption(f"kafka.sasl.kerberos.{each}", BOTH, REFUSED, _KERBEROS)
        for each in (
            "service.name",
            "kinit.cmd",
            "min.time.before.relogin",
            "ticket.renew.jitter",
            "ticket.renew.window.factor",
        )
    ),
    *(
        ConnectorOption(f"kafka.sasl.oauthbearer.{each}", BOTH, REFUSED, _BROKERS)
        for each in (
            "clock.skew.seconds",
            "expected.audience",
            "expected.issuer",
            "jwks.endpoint.refresh.ms",
            "jwks.endpoint.retry.backoff.max.ms",
            "jwks.endpoint.retry.backoff.ms",
            "jwks.endpoint.url",
            "scope.claim.name",
            "sub.claim.name",
        )
    ),
    *(
        ConnectorOption(f"kafka.sasl.oauthbearer.assertion.{each}", BOTH, REFUSED, _ASSERTION)
        for each in (
            "algorithm",
            "claim.aud",
            "claim.exp.seconds",
            "claim.iss",
            "claim.jti.include",
            "claim.nbf.seconds",
            "claim.sub",
            "file",
            "private.key.file",
            "private.key.passphrase",
            "template.file",
        )
    ),
    ConnectorOption("kafka.sasl.oauthbearer.jwt.retriever.class", BOTH, REFUSED, _JVM),
    ConnectorOption("kafka.sasl.oauthbearer.jwt.validator.class", BOTH, REFUSED, _JVM),
    ConnectorOption(
        "kafka.sasl.oauthbearer.header.urlencode",
        BOTH,
        REFUSED,
        "clientId and clientSecret are sent as they are (Kafka's default)",
    ),
)

OF_CONSUMERS: Final = (
    ConnectorOption("kafka.group.id", SOURCE, SAME, "wins over groupIdPrefix, and is a label likewise", "mine"),
    ConnectorOption("kafka.group.instance.id", SOURCE, REFUSED, _GROUP),
    ConnectorOption("kafka.group.protocol", SOURCE, REFUSED, _GROUP),
    ConnectorOption("kafka.group.remote.assignor", SOURCE, REFUSED, _GROUP),
    ConnectorOption("kafka.share.acknowledgement.mode", SOURCE, REFUSED, _SHARE),
    ConnectorOption("kafka.share.acquire.mode", SOURCE, REFUSED, _SHARE),
    ConnectorOption("kafka.partition.assignment.strategy", SOURCE, REFUSED, _GROUP),
    ConnectorOption("kafka.session.timeout.ms", SOURCE, SAME, _GROUP, "45000"),
    ConnectorOption("kafka.heartbeat.interval.ms", SOURCE, SAME, _GROUP, "3000"),
    ConnectorOption("kafka.max.poll.interval.ms", SOURCE, SAME, _GROUP, "300000"),
    ConnectorOption("kafka.max.poll.records", SOURCE, SAME, "", "500"),
    ConnectorOption("kafka.fetch.min.bytes", SOURCE, SAME, "", "1"),
    ConnectorOption("kafka.fetch.max.bytes", SOURCE, SAME, "", "1000"),
    ConnectorOption("kafka.fetch.max.wait.ms", SOURCE, SAME, "20 ms if it is not set", "500"),
    ConnectorOption("kafka.max.partition.fetch.bytes", SOURCE, SAME, "2 MiB if it is not set", "1000"),
    ConnectorOption("kafka.default.api.timeout.ms", SOURCE, SAME, "", "60000"),
    ConnectorOption("kafka.check.crcs", SOURCE, SAME, "", "true"),
    ConnectorOption("kafka.client.rack", SOURCE, SAME, "", "a"),
    ConnectorOption("kafka.isolation.level", SOURCE, DIFFERS, "read_committed if it is not set", "read_uncommitted"),
    ConnectorOption("kafka.allow.auto.create.topics", SOURCE, SAME, "", "false"),
    ConnectorOption("kafka.exclude.internal.topics", SOURCE, SAME, "", "true"),
    ConnectorOption("kafka.auto.commit.interval.ms", SOURCE, SAME, "no effect: " + _IN_CHECKPOINT, "5000"),
    ConnectorOption("kafka.enable.auto.commit", SOURCE, REFUSED, _IN_CHECKPOINT),
    ConnectorOption("kafka.auto.offset.reset", SOURCE, REFUSED, "set the beginning of a query with startingOffsets"),
    ConnectorOption("kafka.key.deserializer", SOURCE, REFUSED, "keys come as binary: cast or decode the column"),
    ConnectorOption("kafka.value.deserializer", SOURCE, REFUSED, "values come as binary: cast or decode the column"),
)

OF_PRODUCERS: Final = (
    ConnectorOption("kafka.acks", SINK, DIFFERS, "only all: every delivery here needs it", "all"),
    ConnectorOption("kafka.enable.idempotence", SINK, DIFFERS, "only true: every delivery here needs it", "true"),
    ConnectorOption("kafka.retries", SINK, DIFFERS, "1 or more: idempotence needs it", "5"),
    ConnectorOption(
        "kafka.max.in.flight.requests.per.connection", SINK, DIFFERS, "at most 5: idempotence needs it", "5"
    ),
    ConnectorOption("kafka.batch.size", SINK, SAME, "768 KiB if it is not set", "16384"),
    ConnectorOption("kafka.linger.ms", SINK, SAME, "", "5"),
    ConnectorOption("kafka.buffer.memory", SINK, SAME, "", "33554432"),
    ConnectorOption("kafka.compression.type", SINK, SAME, "", "lz4"),
    ConnectorOption("kafka.compression.gzip.level", SINK, REFUSED, "each codec has its default level"),
    ConnectorOption("kafka.compression.lz4.level", SINK, REFUSED, "each codec has its default level"),
    ConnectorOption("kafka.compression.zstd.level", SINK, REFUSED, "each codec has its default level"),
    ConnectorOption("kafka.delivery.timeout.ms", SINK, SAME, "", "120000"),
    ConnectorOption("kafka.max.block.ms", SINK, SAME, "also for the first connection", "60000"),
    ConnectorOption("kafka.max.request.size", SINK, SAME, "", "1048576"),
    ConnectorOption("kafka.metadata.max.idle.ms", SINK, SAME, "", "300000"),
    ConnectorOption("kafka.partitioner.ignore.keys", SINK, SAME, "", "true"),
    ConnectorOption(
        "kafka.partitioner.class", SINK, REFUSED, "partitioners are classes of Java: compute a column partition"
    ),
    ConnectorOption("kafka.partitioner.adaptive.partitioning.enable", SINK, REFUSED, _REPLACED),
    ConnectorOption("kafka.partitioner.availability.timeout.ms", SINK, REFUSED, _REPLACED),
    ConnectorOption("kafka.transaction.timeout.ms", SINK, DIFFERS, "15 minutes if it is not set", "60000"),
    ConnectorOption(
        "kafka.transactional.id", SINK, REFUSED, "each task has one of its own; a batch job has its writeId"
    ),
    ConnectorOption(
        "kafka.transaction.two.phase.commit.enable", SINK, REFUSED, "choose the guarantee with the option delivery"
    ),
    ConnectorOption("kafka.key.serializer", SINK, REFUSED, "keys are binary or strings: encode the column"),
    ConnectorOption("kafka.value.serializer", SINK, REFUSED, "values are binary or strings: encode the column"),
)

GROUPS: Final = {
    "Options of Spark": OF_SPARK,
    "Every client": OF_EVERY_CLIENT,
    "TLS and SASL": OF_SECURITY,
    "Consumer (source)": OF_CONSUMERS,
    "Producer (sink)": OF_PRODUCERS,
}


def connector_options() -> Iterator[ConnectorOption]:
    for group in GROUPS.values():
        yield from group


REFUSALS: Final = {each.name: each.text for each in connector_options() if each.answer is REFUSED}
"""The refused options, each with the reason."""
