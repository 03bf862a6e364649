"""What handlers ask: may this principal, from this host, do that? `StandardAuthorizer` is Kafka's of that name.

A decision costs some microseconds, and the same are asked for again and again, so they are remembered until an ACL
changes: a connection holds on to the `Rights` of who asks. Requests name things as they like: of the decisions only so
many are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

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

DECISIONS_KEPT: Final = 10_000
"""Some 3 MB where names are long. When there are more, all are forgotten and made again as they are asked for."""
ALL_OPERATIONS: Final = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}
"""What there is to do with a resource of a type, as `operations` has it."""
ANY_NAME: Final = "any"
SUPER_USER: Final = Decision(True, "SuperUser")


class Asker(NamedTuple):
    """Who asks, and from where."""

    principal: Principal
    host: str


class Rights:
    """What an asker was found to be allowed and denied, as long as `epoch` is the authorizer's. Of one asker there is
    one, for all of their connections. By a rule's `kind` and a name; None: any resource."""

    __slots__ = ("allowed", "asker", "denied", "epoch")

    def __init__(self, asker: Asker, epoch: object) -> None:
        self.asker = asker
        self.epoch = epoch
        self.allowed: set[tuple[int, str | None]] = set()
        """What nobody has to be told of any more."""
        self.denied: dict[tuple[int, str | None], Decision] = {}


class StandardAuthorizer:
    """See the module's docstring. `use` gives it the ACLs that hold from now on."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allows_without_acls: bool = False) -> None:
        """`allows_without_acls`: allow.everyone.if.no.acl.found."""
        self._super_users = frozenset(super_users)
        self._default = ALLOWED_BY_DEFAULT if allows_without_acls else DENIED_BY_DEFAULT
        self._index = AclIndex()
        self._rights: dict[Asker, Rights] = {}
        self._kept = 0
        self.epoch = object()
        """Another one whenever decisions are forgotten."""

    def use(self, acls: Acls) -> None:
        """From now on these ACLs decide."""
        self._index = self._index.of(acls)
        self._forget()

    def _forget(self) -> None:
        self._rights.clear()
        self._kept = 0
        self.epoch = object()

    def rights_of(self, principal: Principal, host: str) -> Rights:
        """Where it is kept what was decided about them. Good until `epoch` is another one."""
        asker = Asker(principal, host)
        rights = self._rights.get(asker)
        if rights is None:
            self._count()
            rights = self._rights[asker] = Rights(asker, self.epoch)
        return rights

    def may(self, rights: Rights, rule: Rule, name: str | None, told: int = 0) -> bool:
        """Whether they may, by a rule of an API, for one of whom that is not in `rights.allowed`; `name` None: with
        any resource of the rule's type. `told`: how many refusals of the same request were told already."""
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
        """What they may do with the resource: a bit for each operation (KIP-430)."""
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
        """One more is to be kept."""
        if self._kept >= DECISIONS_KEPT:
            self._forget()
        self._kept += 1


def parse_super_users(text: str) -> frozenset[Principal]:
    """`User:admin;User:CN=broker,O=x`: separated by semicolons, since names of certificates have commas. ValueError."""
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
