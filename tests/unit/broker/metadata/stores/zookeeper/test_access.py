"""ZooKeeper over TLS with an identity: which clients are admitted, what clients with other identities may do, and the
log messages.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, Permissions
from tests.support.certificates import Certificate
from tests.support.zookeeper.fixtures import ZOOKEEPER_PASSWORD

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model.payloads import BrokerRegistration
from oncelog_broker.metadata.opening import configured_opening
from oncelog_broker.metadata.stores.store import AccessDenied, ConnectionLost, NoNode
from oncelog_broker.metadata.stores.zookeeper import acls as zk_acls
from oncelog_broker.metadata.stores.zookeeper.access import OPEN_ACCESS, ZooKeeperAccess, configured_access
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper

SECONDS = 60.0
SECRET = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=..."}}'
USER = f"{paths.USER_CONFIGS}/anna"


@pytest.fixture
async def open_with(secured_zookeeper, tmp_path):
    """A function that opens a store with the settings of a broker, some of which the test changes."""
    opened = []

    async def open_one(**changed):
        settings = {**secured_zookeeper.settings, "zookeeper.connection.timeout.ms": "60000"}
        settings |= {f"zookeeper.{key.replace('_', '.')}": value for key, value in changed.items()}
        config = BrokerConfig.of({key: value for key, value in settings.items() if value is not None})
        opened.append(await configured_opening(config, tls_to_zookeeper(config)).open(str(tmp_path), SystemClock()))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@contextlib.contextmanager
def stranger(secured_zookeeper, auth_data=()):
    client = KazooClient(secured_zookeeper.connect_plainly, timeout=60, auth_data=auth_data)
    client.start(SECONDS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def everything_beneath(client, path="/"):
    yield path
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        if not zk_acls.is_secret(child):
            yield from everything_beneath(client, child)
        else:
            yield child


def strangers_may_look_and_no_more(client):
    for path in everything_beneath(client):
        if zk_acls.is_secret(path):
            for forbidden in (client.get, client.get_children, client.get_acls):
                with pytest.raises(NoAuthError):
                    forbidden(path)
        else:
            client.get(path)
        with pytest.raises(NoAuthError):
            client.set(path, b"mine")
        with pytest.raises(NoAuthError):
            client.create(f"{path.rstrip('/')}/mine")
        with pytest.raises(NoAuthError):
            client.set_acls(path, OPEN_ACL_UNSAFE)
    for path in (USER, paths.broker_id(1), paths.CLUSTER_ID, paths.topic("t")):
        with pytest.raises(NoAuthError):
            client.delete(path)


async def test_strangers_read_no_secrets_and_write_nothing(open_with, secured_zookeeper):
    store = await open_with()
    registration = BrokerRegistration(())
    await register_broker(store, 1, registration)
    await store.create(USER, SECRET)
    await store.create(paths.broker_config(1), SECRET)
    await store.create(paths.topic("t"))
    with stranger(secured_zookeeper) as client:
        await asyncio.to_thread(strangers_may_look_and_no_more, client)
    with stranger(secured_zookeeper, [("digest", f"brokers:{ZOOKEEPER_PASSWORD}?")]) as client:
        await asyncio.to_thread(strangers_may_look_and_no_more, client)
    with stranger(secured_zookeeper, [("digest", f"brokers:{ZOOKEEPER_PASSWORD}")]) as client:
        assert (await asyncio.to_thread(client.get, f"{USER}"))[0] == SECRET, "known by the password alone"
    assert (await (await open_with()).get(USER))[0] == SECRET


async def test_a_certificate_is_an_identity_too(open_with, secured_zookeeper):
    """ZooKeeper's scheme `x509` identifies the broker by its certificate, without a digest."""

    def by_certificate(key_store):
        return open_with(digest_user=None, digest_password=None, ssl_keystore_location=str(key_store))

    store = await by_certificate(secured_zookeeper.key_store)
    await register_broker(store, 1, BrokerRegistration(()))
    await store.create(USER, SECRET)
    await store.create(paths.topic("t"))
    with stranger(secured_zookeeper) as client:
        await asyncio.to_thread(strangers_may_look_and_no_more, client)
        acl, _ = await asyncio.to_thread(client.get_acls, paths.topic("t"))
    assert {(each.id.scheme, each.id.id): each.perms for each in acl} == {
        ("x509", "CN=broker"): Permissions.ALL,
        ("world", "anyone"): Permissions.READ,
    }
    other = await by_certificate(secured_zookeeper.other_key_store)
    for ask in (other.get(USER), other.set(paths.topic("t"), b""), other.children(paths.USER_CONFIGS)):
        with pytest.raises(AccessDenied, match="another identity"):
            await ask
    again = await by_certificate(secured_zookeeper.key_store)
    assert (await again.get(USER))[0] == SECRET
    await again.set(USER, b"{}")


async def test_a_broker_with_another_password_is_told_what_it_may_not(open_with, caplog):
    store = await open_with()
    await store.create(USER, SECRET, make_parents=True)
    other = await open_with(digest_password="guessed")
    for ask in (other.get(USER), other.set(USER, b""), other.create("/controller"), other.children(paths.USER_CONFIGS)):
        with pytest.raises(AccessDenied, match="another identity"):
            await ask
    with pytest.raises(AccessDenied, match=USER):
        await other.get_many(["/", USER])
    assert "guessed" not in caplog.text


async def test_a_watch_tells_strangers_of_no_secrets(open_with):
    """ZooKeeper checks ACLs before it sends notifications, so the other identity is notified only of readable nodes."""
    store, other = await open_with(), await open_with(digest_password="guessed")
    await store.create(paths.USER_CONFIGS, make_parents=True)
    heard = []
    changed = asyncio.Event()
    other.watch("/", lambda path: (heard.append(path), path == "/open" and changed.set()))
    await other.sync()
    await store.create(USER, SECRET)
    await store.create("/open")
    async with asyncio.timeout(SECONDS):
        await changed.wait()
    assert not [path for path in heard if path.startswith(paths.USER_CONFIGS)]


async def test_nodes_from_before_that_anybody_may_change_are_named(open_with, secured_zookeeper, caplog):
    chroot = secured_zookeeper.connect.partition("/")[2]
    store = await open_with(set_acl="false")
    await store.create(paths.USER_CONFIGS, make_parents=True)
    assert "anybody may change" not in caplog.text
    await open_with()
    (record,) = [record for record in caplog.records if "anybody may change them" in record.message]
    assert record.paths.split() == [f"/{chroot}", f"/{chroot}/config", f"/{chroot}/config/users"]


@pytest.mark.parametrize(
    "path",
    [paths.LITERAL_ACLS, f"{paths.PREFIXED_ACLS}/Topic", paths.CLIENT_CONFIGS, paths.IP_CONFIGS, paths.LOGIN_KEY],
)
async def test_nodes_made_on_demand_are_protected_too(monkeypatch, caplog, path):
    """A client that may write these nodes could give itself rights."""
    store = ZooKeeperStore("127.0.0.1:1", "", 1.0, SystemClock(), ZooKeeperAccess(protects_nodes=True))

    async def ask(asked, request):
        if asked != path:
            raise NoNode(asked)
        return list(OPEN_ACL_UNSAFE), None

    monkeypatch.setattr(store, "_ask", ask)
    await store._warn_of_open_nodes()
    (record,) = [record for record in caplog.records if "anybody may change them" in record.message]
    assert record.paths == path


@pytest.mark.parametrize("trusted", ["another authority", "the system's"])
async def test_foreign_servers_do_not_get_our_credentials(open_with, tmp_path, trusted):
    location = None
    if trusted == "another authority":
        location = str(tmp_path / "another.pem")
        Path(location).write_text(Certificate.authority().pem)
    with pytest.raises(ConnectionLost, match=r"the last try: 127.0.0.1:\d+: .*certificate verify failed"):
        await open_with(ssl_truststore_location=location, connection_timeout_ms="2000")


async def test_changed_certificates_hold_from_the_next_connection_on(open_with, secured_zookeeper, tmp_path):
    authorities = tmp_path / "trusted.pem"
    authorities.write_text(Certificate.authority().pem)
    config = BrokerConfig.of({**secured_zookeeper.settings, "zookeeper.ssl.truststore.location": str(authorities)})
    access = configured_access(config, tls_to_zookeeper(config))
    opening = asyncio.ensure_future(
        ZooKeeperStore.open(secured_zookeeper.connect, connection_timeout=SECONDS, access=access)
    )
    await asyncio.wait([opening], timeout=0.3)
    authorities.write_text(secured_zookeeper.authority.read_text())
    await (await opening).close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"set.acl": "true"}, "zookeeper.set.acl needs an identity"),
        ({"set.acl": "true", "ssl.client.enable": "true"}, "zookeeper.set.acl needs an identity"),
        ({"set.acl": "true", "ssl.keystore.location": "key.pem"}, "zookeeper.set.acl needs an identity"),
        ({"digest.user": "brokers"}, "go together"),
        ({"digest.password": "secret"}, "go together"),
        ({"digest.user": "a:b", "digest.password": "secret"}, "without a colon"),
        ({"ssl.client.enable": "true", "ssl.keystore.location": "key.jks"}, "JKS is not served"),
        ({"ssl.client.enable": "true", "ssl.truststore.location": "none.pem"}, "zookeeper.ssl.truststore.location"),
        ({"ssl.client.enable": "true", "ssl.keystore.location": "none.p12"}, "zookeeper.ssl.keystore.location"),
        (
            {"ssl.client.enable": "true", "ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
            "zookeeper.ssl.enabled.protocols",
        ),
    ],
)
def test_contradictory_settings_are_refused_without_showing_secrets(settings, message):
    config = BrokerConfig.of({f"zookeeper.{key}": value for key, value in settings.items()})
    with pytest.raises(InvalidConfig, match=message) as raised:
        configured_access(config, tls_to_zookeeper(config))
    assert "secret" not in str(raised.value)


def test_the_tls_settings_are_followed(tmp_path):
    authority = Certificate.authority()
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": authority.issue(("CN", "b")).pkcs12(tmp_path / "key.p12", "pw", authority),
        "zookeeper.ssl.keystore.password": "pw",
        "zookeeper.ssl.truststore.location": authority.issue(("CN", "b")).store(tmp_path / "trusted.pem"),
        "zookeeper.ssl.protocol": "TLSv1.2",
        "zookeeper.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.set.acl": "true",
    }
    config = BrokerConfig.of(settings)
    tls = tls_to_zookeeper(config)
    context = tls()
    assert not context.check_hostname
    assert context.maximum_version == context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in [each["name"] for each in context.get_ciphers()]
    access = configured_access(config, tls)
    assert access.protects_nodes
    assert access.identity is None, "it is the certificate"
    assert tls_to_zookeeper(BrokerConfig.of({})) is None
    assert configured_access(BrokerConfig.of({}), None) == OPEN_ACCESS


@pytest.mark.parametrize(
    ("path", "is_secret"),
    [
        ("/", False),
        ("/config", False),
        ("/config/users", True),
        ("/config/users/anna/clients/a", True),
        ("/config/brokers/1", True),
        ("/config/users2", False),
        ("/config/topics/t", False),
        ("/kafka-acl", False),
        ("/brokers/ids/1", False),
    ],
)
def test_secret_nodes_are_readable_by_brokers_only(path, is_secret):
    assert zk_acls.is_secret(path) is is_secret
    acl = zk_acls.entries(path, is_protected=True)
    assert not zk_acls.is_open(path, acl)
    assert zk_acls.is_open(path, zk_acls.entries(path, is_protected=False))
    assert zk_acls.packed(acl) == zk_acls.packed_for(path, is_protected=True)
    assert zk_acls.packed_for(path, is_protected=False) == zk_acls.OPEN
