"""A compared broker (side) on which every client must log in, and which has two users with known rights."""

from __future__ import annotations

from typing import ClassVar, Final

from tests.integration.cases.authorization_cases import ALLOWED_GROUP, ALLOWED_TRANSACTION, SECRET, Names
from tests.integration.clients.raw_client import CREATE_TOPICS_VERSION, RawClient
from tests.interop.differential.calls import GROUP, TRANSACTION, coordinator
from tests.interop.differential.side import Side

from oncelog_protocol.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_acls import CreateAclsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest

USER, PASSWORD = "alice", "secret"
JAAS: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "super.users": "User:ANONYMOUS",
}
"""A client of the PLAINTEXT listener has all rights; alice has only the following rights:"""
ALLOWED: Final = (
    (ResourceType.GROUP, ALLOWED_GROUP, AclOperation.READ),
    (ResourceType.GROUP, ALLOWED_GROUP, AclOperation.DELETE),
    (ResourceType.TRANSACTIONAL_ID, ALLOWED_TRANSACTION, AclOperation.WRITE),
    (ResourceType.TOPIC, "to-look-at", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, "mine", AclOperation.CREATE),
)


def prepare(port: int) -> None:
    """Create topics, ACLs and the internal topics of the coordinators through the listener on which everything is
    allowed.
    """
    with RawClient(port) as client:
        for name in (SECRET.topic, "to-look-at"):
            topic = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            client.call(
                CreateTopicsRequest(topics=[topic], timeout_ms=30_000), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION
            )
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{USER}",
                host="*",
                operation=operation,
                permission_type=AclPermission.ALLOW,
            )
            for kind, name, operation in ALLOWED
        ]
        answer = client.call(CreateAclsRequest(creations=creations), ApiKey.CREATE_ACLS, 3)
        assert [result.error_code for result in answer.results] == [0] * len(ALLOWED)
    side = Side("prepared", port, "")
    for kind in (GROUP, TRANSACTION):
        coordinator(side, ALLOWED_GROUP, kind)
    side.close()


class LoggedIn(Side):
    """One of the two compared brokers; connections to it are logged in as alice, except those whose names begin with
    "stranger".
    """

    plain_ports: ClassVar[dict[int, int]] = {}
    """Maps the port of SASL_PLAINTEXT to the port of PLAINTEXT."""

    def secret(self) -> Names:
        """Names that the responses to alice must not contain."""
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=SECRET.topic)])
        with RawClient(self.plain_ports[self.port]) as client:
            (topic,) = client.call(wanted, ApiKey.METADATA, 12).topics
        return SECRET._replace(topic_id=topic.topic_id)

    def _connection(self, name: str) -> RawClient:
        is_new = name not in self._connections
        client = super()._connection(name)
        if is_new and not name.startswith("stranger"):
            shaken = client.call(SaslHandshakeRequest(mechanism="PLAIN"), ApiKey.SASL_HANDSHAKE, 1)
            token = f"\0{USER}\0{PASSWORD}".encode()
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token), ApiKey.SASL_AUTHENTICATE, 2)
            assert (shaken.error_code, answer.error_code) == (0, 0)
        return client
