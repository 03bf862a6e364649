"""Tests brokers that present certificates and log in to each other, and to ZooKeeper over TLS: replication, elections
and transactions continue.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from final_state import settle_and_check
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from raw_client import RawClient
from recording_clients import PRODUCERS
from replicated_cluster import ReplicatedCluster
from secured_cluster import PASSWORD, authority, known
from tests.support.zookeeper.fixtures import SecuredZooKeeper

from oncelog import Admin
from oncelog.errors import AuthenticationFailed
from oncelog_protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_acls import DescribeAclsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

METADATA_VERSION = 9


@pytest.fixture
def secured(secured_zookeeper: SecuredZooKeeper, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    settings = {
        "connections.max.reauth.ms": "3000",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:broker",
    }
    (tmp_path / "authority.pem").write_text(authority().pem)
    authority().issue(("CN", "client")).store(tmp_path / "client.pem")
    with ReplicatedCluster(tmp_path, known(secured_zookeeper), settings) as cluster:
        yield cluster
    cluster.check_logs()


def test_secured_brokers_keep_working_together(
    secured: ReplicatedCluster, history: History, topic: str, tmp_path: Path
) -> None:
    asyncio.run(let_clients_do_all_but_what_is_for_brokers(secured, tmp_path))
    secured.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    with PRODUCERS["oncelog"](secured.addresses, history, "anna", "anna") as producer:
        for _ in range(3):  # a commit sends markers to all brokers, over secured connections
            producer.begin()
            for index in range(3):
                producer.send(Place(topic, index))
            producer.flush()
            producer.commit()
        secured.until_whole(topic)
        for _ in range(2):  # the second transaction begins while one broker is down
            producer.begin()
            producer.send(Place(topic))
            producer.flush()
            if secured.all_are_up:
                secured.kill(secured.until_led(topic).leader)
            producer.send(Place(topic))
            producer.flush()
            producer.commit()
    settle_and_check(secured, history, topic)
    strangers_stay_out(secured, tmp_path)


async def let_clients_do_all_but_what_is_for_brokers(secured: ReplicatedCluster, directory: Path) -> None:
    """Clients use no login in these tests; give them all rights except the rights of brokers. Brokers may send requests
    to each other because of their authenticated identity.
    """
    everything = [(kind, "*", AclOperation.ALL) for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
    everything.append((ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL))
    everything += [
        (ResourceType.CLUSTER, CLUSTER_NAME, operation)
        for operation in SUPPORTED_OPERATIONS[ResourceType.CLUSTER]
        if operation is not AclOperation.CLUSTER_ACTION
    ]
    async with Admin(f"127.0.0.1:{secured.peer_ports[1]}", **as_broker(directory)) as admin:
        await admin.acls.create(
            AclBinding(
                ResourcePattern(kind, name, PatternType.LITERAL),
                AclEntry("User:ANONYMOUS", "*", operation, AclPermission.ALLOW),
            )
            for kind, name, operation in everything
        )
    for node_id in secured.up:
        secured.until(lambda: acls_known_to(secured, node_id) == len(everything), f"broker {node_id} knows the ACLs")  # noqa: B023


def acls_known_to(secured: ReplicatedCluster, node_id: int) -> int:
    """Return how many ACLs this broker returns; 0 until the broker knows an authorized principal."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    with secured.client(node_id) as client:
        answer = client.call(request, ApiKey.DESCRIBE_ACLS, 2)
    return sum(len(resource.acls) for resource in answer.resources)


def as_broker(directory: Path, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(directory / "authority.pem"),
        "ssl_certfile": str(directory / "client.pem"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "broker",
        "sasl_plain_password": password,
    }


def strangers_stay_out(secured: ReplicatedCluster, directory: Path) -> None:
    port = secured.peer_ports[1]
    with RawClient(port) as client, pytest.raises(OSError, match=r"closed|reset"):
        client.call(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION)
    context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    with (
        socket.create_connection(("127.0.0.1", port), 60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as shaken,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
    ):
        shaken.recv(1)

    async def ask() -> None:
        async with Admin(f"127.0.0.1:{port}", **as_broker(directory, "guessed")) as admin:
            await admin.list_topics()

    with pytest.raises(AuthenticationFailed):
        asyncio.run(ask())


def test_strangers_cannot_change_cluster_metadata(secured: ReplicatedCluster, topic: str, tmp_path: Path) -> None:
    """A stranger (a client without a login) reaches ZooKeeper through another port."""
    asyncio.run(let_clients_do_all_but_what_is_for_brokers(secured, tmp_path))
    secured.create_topic(topic)
    client = KazooClient(secured.zookeeper, timeout=60)
    client.start(60)
    try:
        for path in ("/config/users/broker", "/config/users"):
            with pytest.raises(NoAuthError):
                client.get(path)
        for path in ("/controller", "/controller_epoch", f"/brokers/topics/{topic}/partitions/0/state"):
            with pytest.raises(NoAuthError):
                client.set(path, b"{}")
            with pytest.raises(NoAuthError):
                client.delete(path)
        with pytest.raises(NoAuthError):
            client.create("/config/users/stranger", b"{}")
    finally:
        client.stop()
        client.close()
