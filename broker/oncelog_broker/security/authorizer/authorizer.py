"""What handlers ask: may this principal, from this host, do that? `StandardAuthorizer` is Kafka's of that name.

A decision costs some microseconds, and the same are asked for again and again, so they are remembered until an ACL
changes. Requests name things as they like: of the decisions only so many are kept.
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
SUPER_USER: Final = Decision(True, "SuperUser")


class Asker(NamedTuple):
    """Who asks, and from where."""

    principal: Principal
    host: str


class StandardAuthorizer:
    """See the module's docstring. `use` gives it the ACLs that hold from now on."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allows_without_acls: bool = False) -> None:
        """`allows_without_acls`: allow.everyone.if.no.acl.found."""
        self._super_users = frozenset(super_users)
        self._default = ALLOWED_BY_DEFAULT if allows_without_acls else DENIED_BY_DEFAULT
        self._index = AclIndex()
        self._decisions: dict[tuple[Asker, AclOperation, ResourceType, str | None], Decision] = {}

    def use(self, acls: Acls) -> None:
        """From now on these ACLs decide."""
        self._index = self._index.of(acls)
        self._decisions.clear()

    def may(self, asker: Asker, rule: Rule, name: str | None, told: int = 0) -> bool:
        """Whether they may, by a rule of an API; `name` None: with any resource of the rule's type. `told`: how many
        refusals of the same request were told already."""
        key = (asker, rule.operation, rule.resource, name)
        decision = self._decisions.get(key) or self._decide(*key)
        if decision.is_allowed:
            if audit_log.isEnabledFor(logging.DEBUG):
                tell(*asker, rule, name or "any", decision)
            return True
        if rule.is_told and told < REFUSALS_TOLD:
            tell(*asker, rule, name or "any", decision)
        elif rule.is_told and told == REFUSALS_TOLD:
            tell_of_more(*asker, rule)
        return False

    def operations(self, asker: Asker, kind: ResourceType, name: str) -> int:
        """What they may do with the resource: a bit for each operation (KIP-430)."""
        bits = 0
        for operation in SUPPORTED_OPERATIONS[kind]:
            key = (asker, operation, kind, name)
            decision = self._decisions.get(key) or self._decide(*key)
            bits |= decision.is_allowed << operation
        return bits

    def _decide(self, asker: Asker, operation: AclOperation, kind: ResourceType, name: str | None) -> Decision:
        if asker.principal in self._super_users:
            decision = SUPER_USER
        else:
            principal, host = str(asker.principal), plain_host(asker.host)
            if name is None:
                decision = self._index.decide_for_any(principal, host, operation, kind, default=self._default)
            else:
                decision = self._index.decide(principal, host, operation, kind, name, default=self._default)
        if len(self._decisions) >= DECISIONS_KEPT:
            self._decisions.clear()
        self._decisions[asker, operation, kind, name] = decision
        return decision


def parse_super_users(text: str) -> frozenset[Principal]:
    """`User:admin;User:CN=broker,O=x`: separated by semicolons, since names of certificates have commas. ValueError."""
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())
