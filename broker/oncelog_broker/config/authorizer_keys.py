"""The broker's authorization keys. `BROKER_KEYS` in `broker_keys` includes these keys."""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.declared import Allowed, ConfigKey, ConfigType, Importance, one_of

STANDARD_AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "StandardAuthorizer",
)
"""The accepted names of Kafka's authorizers; each name selects the authorizer of this broker."""


def _are_principals(value: object) -> bool:
    each = (principal.strip().partition(":") for principal in str(value).split(";") if principal.strip())
    return all(kind and name for kind, _, name in each)


AUTHORIZER_CLASS_NAME = ConfigKey[str](
    "authorizer.class.name",
    ConfigType.STRING,
    "",
    "With StandardAuthorizer, or the name of one of Kafka's authorizer classes, requests are authorized by "
    "ACLs. If empty, every request is allowed.",
    one_of("", *STANDARD_AUTHORIZERS),
    Importance.LOW,
)
SUPER_USERS = ConfigKey[str](
    "super.users",
    ConfigType.STRING,
    "",
    "Principals that may do everything, whatever the ACLs say, separated by semicolons: "
    "User:admin;User:CN=broker,O=x. The principals of brokers must be super users, or have an ACL for "
    "ClusterAction.",
    Allowed("User:name;User:name", _are_principals),
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = ConfigKey[bool](
    "allow.everyone.if.no.acl.found",
    ConfigType.BOOLEAN,
    False,
    "Whether every operation is allowed on a resource to which no ACL applies.",
)
