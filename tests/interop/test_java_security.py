"""Tests that Java's client logs in by each mechanism, with TLS and without, and raises the exceptions that its users
expect.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import javaproperties
import pytest
from conftest import HERE, RELEASES, or_skip
from maven import jars, need
from secured_broker import ADMIN, ADMIN_PASSWORD, PASSWORD, USER, SecuredBroker
from tests.support.certificates import Certificate

from oncelog import Admin, NewTopic
from oncelog_protocol.acls import AclBinding, AclEntry, AclOperation, AclPermission, PatternType, ResourcePattern
from oncelog_protocol.acls import ResourceType as Kind

RUN_SECONDS = 300
HEAP = "-Xmx96m"
MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    "sasl.oauthbearer.allow.unsecured.tokens": "true",
    "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]*).*$/$1/",
}
OPEN, CLOSED = "may-be-used", "is-for-others"
READABLE = "may-be-read"
"""Two topics: alice has all rights on the first one, and none on the second."""

Cases = dict[str, tuple[dict[str, str], str]]
"""Name of a case -> the settings of the client, and the expected outcome."""


def login(mechanism: str, *, is_right: bool = True) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        audience = "oncelog" if is_right else "somebody else"
        options = f'unsecuredLoginStringClaim_sub="{USER}" unsecuredLoginStringClaim_aud="{audience}"'
    else:
        options = f'username="{USER}" password="{PASSWORD if is_right else "guessed"}"'
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {options};"}


def cases(broker: SecuredBroker, directory: Path) -> Cases:
    def at(listener: str, what: str, topic: str = OPEN, **settings: str) -> dict[str, str]:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(broker.authority_file)}
        return {
            "bootstrap.servers": broker.address(listener),
            "security.protocol": listener,
            "case.do": what,
            "case.topic": topic,
            **(trust if listener.endswith("SSL") else {}),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    found: Cases = {}
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MODULES:
            name = f"{mechanism} at {listener}"
            right, wrong = login(mechanism), login(mechanism, is_right=False)
            found[name] = at(listener, "write") | right, "ok"
            found[f"{name}, wrong"] = at(listener, "write") | wrong, "SaslAuthenticationException"
    in_plain = login("PLAIN")
    found["reads"] = at("SASL_SSL", "read") | in_plain, "ok"
    for what in ("write", "read"):
        found[f"may not {what}"] = at("SASL_SSL", what, CLOSED) | in_plain, "TopicAuthorizationException"
    found["may read only"] = at("SASL_SSL", "write", READABLE) | in_plain, "TopicAuthorizationException"
    for group, outcome in ((OPEN, "ok"), (CLOSED, "GroupAuthorizationException")):
        found[f"group {group}"] = at("SASL_SSL", "group", group_id=group) | in_plain, outcome
    for name, outcome in ((OPEN, "ok"), (CLOSED, "TransactionalIdAuthorizationException")):
        found[f"transaction {name}"] = at("SASL_SSL", "transact", transactional_id=name) | in_plain, outcome
    for topic in (CLOSED, READABLE):
        settings = at("SASL_SSL", "transact", topic, transactional_id=OPEN)
        found[f"transaction to {topic}"] = settings | in_plain, "TopicAuthorizationException"
    mine = broker.authority.issue(("CN", USER)).store(directory / "alice.pem")
    foreign = directory / "foreign.pem"
    foreign.write_text(Certificate.authority("another").pem)
    with_key = {"ssl_keystore_type": "PEM", "ssl_keystore_location": mine}
    found["a certificate"] = at("SSL", "write", **with_key), "ok"
    found["a certificate, may not"] = at("SSL", "write", CLOSED, **with_key), "TopicAuthorizationException"
    found["no certificate"] = at("SSL", "write"), "TopicAuthorizationException"
    found["nobody"] = at("PLAINTEXT", "write"), "TopicAuthorizationException"
    found["another authority"] = at("SSL", "write", ssl_truststore_location=str(foreign)), "SslAuthenticationException"
    return found


async def allow(broker: SecuredBroker) -> None:
    settings = broker.settings("SASL_SSL", "SCRAM-SHA-512", ADMIN, ADMIN_PASSWORD)
    allowed = [
        (Kind.TOPIC, OPEN, AclOperation.ALL),
        (Kind.TOPIC, READABLE, AclOperation.READ),
        (Kind.GROUP, OPEN, AclOperation.READ),
        (Kind.TRANSACTIONAL_ID, OPEN, AclOperation.WRITE),
    ]
    async with Admin(broker.address("SASL_SSL"), **settings) as admin:
        await admin.create_topics([NewTopic(topic, 1) for topic in (OPEN, READABLE, CLOSED)])
        await admin.acls.create(
            AclBinding(
                ResourcePattern(kind, name, PatternType.LITERAL),
                AclEntry(f"User:{USER}", "*", operation, AclPermission.ALLOW),
            )
            for kind, name, operation in allowed
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), SETTINGS) as broker:
        asyncio.run(allow(broker))
        yield broker
    for secret in (PASSWORD, ADMIN_PASSWORD, "Traceback"):
        assert secret not in broker.logged


@pytest.mark.parametrize("release", RELEASES)
def test_logins_succeed_or_fail_as_in_kafka(release: str, secured: SecuredBroker, tmp_path: Path) -> None:
    """All cases run in one JVM."""
    or_skip(lambda: need("java", "javac", "mvn"))
    libraries = or_skip(lambda: jars(HERE / "java" / "security-pom.xml", release, "java-security"))
    wanted = cases(secured, tmp_path)
    directory = tmp_path / "cases"
    directory.mkdir()
    for name, (settings, _) in wanted.items():
        (directory / name).write_text(javaproperties.dumps(settings, timestamp=None))
    program = str(HERE / "java" / "Security.java")
    run = subprocess.run(
        ["java", HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", program, str(directory)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    outcomes: Mapping[str, str] = dict(line.split("\t") for line in run.stdout.splitlines())  # type: ignore[misc]
    assert outcomes == {name: outcome for name, (_, outcome) in wanted.items()}
