"""The broker keys of Apache Kafka 4.3 that have no effect in oncelog.

Tools and infrastructure code for Kafka set common sets of keys and stop at the first refusal, so a key without effect
in oncelog is accepted, with a warning in the log. There are three kinds:

- Dynamic keys may change while the broker runs. The value must have the key's type; the value is stored and described.
- Static keys are read by Kafka only at startup. Static keys without effect are accepted at startup, and refused while
  the broker runs, as in Kafka.
- Refused keys request a function that this broker does not have, and on which users would rely, such as a policy or a
  plug-in for authorization. Keys of this kind are refused with the reason.

A key that neither Kafka nor this broker knows is refused as misspelt. The module is imported only when a key is not in
`BROKER_KEYS`, so that most starts do not spend time on the import.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from oncelog_broker.config.declared import ConfigKey, ConfigType, UpdateMode

_DYNAMIC: Final = {
    ConfigType.BOOLEAN: """
        follower.fetch.last.tiered.offset.enable
    """,
    ConfigType.DOUBLE: """
        log.cleaner.io.buffer.load.factor sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    ConfigType.INT: """
        background.threads compression.gzip.level compression.lz4.level compression.zstd.level
        group.coordinator.cached.buffer.max.bytes log.cleaner.io.buffer.size
        log.cleaner.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
        num.replica.fetchers remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.expiration.thread.pool.size remote.log.manager.follower.thread.pool.size
        remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
    """,
    ConfigType.LIST: """
        metric.reporters sasl.kerberos.principal.to.local.rules
    """,
    ConfigType.LONG: """
        log.local.retention.bytes log.local.retention.ms remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.fetch.max.bytes.per.second
        sasl.kerberos.min.time.before.relogin
    """,
    ConfigType.SHORT: """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    """,
    ConfigType.STRING: """
        sasl.kerberos.kinit.cmd sasl.kerberos.service.name ssl.keymanager.algorithm ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm
    """,
}

_STATIC: Final = """
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
broker.heartbeat.interval.ms broker.session.timeout.ms controller.socket.timeout.ms
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
delegation.token.secret.key delete.records.purgatory.purge.interval.requests early.start.listeners
fetch.purgatory.purge.interval.requests group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignors
initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.dir.failure.timeout.ms max.request.partition.size.limit metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metrics.num.samples metrics.recording.level metrics.sample.window.ms num.replica.alter.log.dirs.threads
offsets.load.buffer.size producer.purgatory.purge.interval.requests remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix replica.socket.receive.buffer.bytes
replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.token.endpoint.url security.providers
share.coordinator.append.linger.ms share.coordinator.load.buffer.size
share.coordinator.state.topic.compression.codec
share.coordinator.threads
share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
ssl.allow.dn.changes ssl.allow.san.changes transaction.state.log.load.buffer.size
"""

_NO_PLUG_INS: Final = "this broker loads no Java classes, so the rules of that class would not be applied"
_NO_KRAFT: Final = (
    "KRaft is not supported: remove the key, and set zookeeper.connect to form a cluster of several brokers"
)
_REFUSED: Final = {
    "alter.config.policy.class.name": _NO_PLUG_INS,
    "client.quota.callback.class": _NO_PLUG_INS,
    "config.providers": "values are read from ${env:NAME} and ${file:PATH} without a provider",
    "controller.listener.names": _NO_KRAFT,
    "cordoned.log.dirs": "the broker would still create new logs in these directories",
    "create.topic.policy.class.name": _NO_PLUG_INS,
    "max.connections.per.ip.overrides": "max.connections.per.ip applies to all addresses",
    "principal.builder.class": _NO_PLUG_INS,
    "process.roles": _NO_KRAFT,
    "sasl.client.callback.handler.class": _NO_PLUG_INS,
    "sasl.login.callback.handler.class": _NO_PLUG_INS,
    "sasl.login.class": _NO_PLUG_INS,
    "sasl.oauthbearer.jwt.retriever.class": _NO_PLUG_INS,
    "sasl.oauthbearer.jwt.validator.class": _NO_PLUG_INS,
    "sasl.server.callback.handler.class": _NO_PLUG_INS,
    "ssl.engine.factory.class": _NO_PLUG_INS,
}
_REFUSED_UNLESS_FALSE: Final = {
    "remote.log.storage.system.enable": "tiered storage is not supported",
}
_KRAFT_PREFIX: Final = "controller.quorum."

DOCUMENTATION: Final = "No effect: a key of Apache Kafka's that changes nothing here."


@cache
def dynamic_keys() -> dict[str, ConfigKey[Any]]:
    """Return the dynamic keys without effect, by name."""
    return {
        name: ConfigKey[Any](name, type_, None, DOCUMENTATION, update_mode=UpdateMode.CLUSTER_WIDE)
        for type_, names in _DYNAMIC.items()
        for name in names.split()
    }


@cache
def static_names() -> frozenset[str]:
    """Return the names of the static keys without effect."""
    return frozenset(_STATIC.split())


def is_effectless(name: str) -> bool:
    """Whether the name is a key of Kafka that this broker accepts at startup although the key has no effect."""
    return name in static_names() or name in dynamic_keys() or name in _REFUSED_UNLESS_FALSE


def reason_to_refuse(name: str, text: str | None) -> str | None:
    """Return the reason why a key of Kafka is refused when it has this value; None if the key is accepted with this
    value.
    """
    if name in _REFUSED_UNLESS_FALSE:
        return None if text is not None and text.strip().lower() == "false" else _REFUSED_UNLESS_FALSE[name]
    return _NO_KRAFT if name.startswith(_KRAFT_PREFIX) else _REFUSED.get(name)
