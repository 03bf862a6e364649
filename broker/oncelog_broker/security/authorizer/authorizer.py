"""The authorizer that handlers use, like Kafka's StandardAuthorizer: decides whether a principal may do an operation on
a resource from a host.

A decision takes some microseconds and is needed often, so it is cached until an ACL changes; a connection keeps the
`Rights` of its principal. Requests may contain any resource names, so the cache is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from oncelog_broker.security.authorizer.acl_index import (
    ALLOWED_BY_DEFAULT,
    DENIED_BY_DEFAULT,
    AclIndex,
    Acls,
    Decision,
    plain_host,
)
from oncelog_broker.security.authorizer.audit import REFUSALS_TOLD, audit_log, tell, tell_of_more
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.security.principal import Principal, parse_principal
from oncelog_protocol.acls import SUPPORTED_OPERATIONS, AclOperation, ResourceType
from oncelog_protocol.light_classes import NamedTuple

DECISIONS_KEPT: Final = 10_000
"""Limit on the cached decisions: about 3 MB if names are long. At this limit the entire cache is dropped."""
ALL_OPERATIONS: Final = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}
"""Maps a resource type to the bits of all its operations, in the encoding of DescribeAcls' authorized operations."""
ANY_NAME: Final = "any"
SUPER_USER: Final = Decision(True, "SuperUser")


class Asker(NamedTuple):
    """A principal and the host from which it connects."""

    principal: Principal
    host: str


class Rights:
    """The cached decisions for one principal and host; the decisions are valid while `epoch` is the authorizer's
    `epoch`. All connections of one principal and host share this object. A key of the mapping is a rule's `kind` with a
    resource name; the name None means any resource.
    """

    __slots__ = ("allowed", "asker", "denied", "epoch")

    def __init__(self, asker: Asker, epoch: object) -> None:
        self.asker = asker
        self.epoch = epoch
        self.allowed: set[tuple[int, str | None]] = set()
        """Allowed decisions that were already logged."""
        self.denied: dict[tuple[int, str | None], Decision] = {}


class StandardAuthorizer:
    """Decides by the ACLs that `use` sets, and caches the decisions."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allows_without_acls: bool = False) -> None:
        """`allows_without_acls`: allow.everyone.if.no.acl.found."""
        self._super_users = frozenset(super_users)
        self._default = ALLOWED_BY_DEFAULT if allows_without_acls else DENIED_BY_DEFAULT
        self._index = AclIndex()
        self._rights: dict[Asker, Rights] = {}
        self._kept = 0
        self.epoch = object()
        """This object is replaced whenever the cached decisions are dropped."""

    def use(self, acls: Acls) -> None:
        """Use these ACLs for all decisions from now on."""
        self._index = self._index.of(acls)
        self._forget()

    def _forget(self) -> None:
        self._rights.clear()
        self._kept = 0
        self.epoch = object()

    def rights_of(self, principal: Principal, host: str) -> Rights:
        """Return the cached decisions of a principal and host. The decisions are valid until `epoch` changes."""
        asker = Asker(principal, host)
        rights = self._rights.get(asker)
        if rights is None:
            self._count()
            rights = self._rights[asker] = Rights(asker, self.epoch)
        return rights

    def may(self, rights: Rights, rule: Rule, name: str | None, told: int = 0) -> bool:
        """Return whether a rule allows the principal to use a resource that is not in `rights.allowed`; `name` None
        means any resource of the rule's type. The argument `told` is the number of denials that were already logged for
        the same request.
        """
        key = (rule.kind, name)
        decision = rights.denied.get(key)
        if decision is None:
            decision = self._decide(rights.asker, rule.operation, rule.resource, name)
            if decision.is_allowed:
                if audit_log.isEnabledFor(logging.DEBUG):
                    tell(*rights.asker, rule, name or ANY_NAME, decision)
                else:
                    self._count()
                    rights.allowed.add(key)
                return True
            self._count()
            rights.denied[key] = decision
        if rule.is_told and told < REFUSALS_TOLD:
            tell(*rights.asker, rule, name or ANY_NAME, decision)
        elif rule.is_told and told == REFUSALS_TOLD:
            tell_of_more(*rights.asker, rule)
        return False

    def operations(self, rights: Rights, kind: ResourceType, name: str) -> int:
        """Return the allowed operations on the resource, one bit for each operation (KIP-430)."""
        bits = 0
        for operation in SUPPORTED_OPERATIONS[kind]:
            bits |= self._decide(rights.asker, operation, kind, name).is_allowed << operation
        return bits

    def _decide(self, asker: Asker, operation: AclOperation, kind: ResourceType, name: str | None) -> Decision:
        if asker.principal in self._super_users:
            return SUPER_USER
        principal, host = str(asker.principal), plain_host(asker.host)
        if name is None:
            return self._index.decide_for_any(principal, host, operation, kind, default=self._default)
        return self._index.decide(principal, host, operation, kind, name, default=self._default)

    def _count(self) -> None:
        """Count one more cached decision; drop all decisions at the limit."""
        if self._kept >= DECISIONS_KEPT:
            self._forget()
        self._kept += 1


def parse_super_users(text: str) -> frozenset[Principal]:
    """Parse principals such as `User:admin;User:CN=broker,O=x`; semicolons separate them, because certificate names
    contain commas. Raises ValueError.
    """
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
