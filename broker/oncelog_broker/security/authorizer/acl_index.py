"""An index of the cluster's ACLs, to find the ACLs of one resource quickly.

A resource is subject to the ACLs on its name, on each prefix of its name, and on the wildcard. A deny overrides an
allow; for a resource without ACLs, `allow.everyone.if.no.acl.found` decides. An index is immutable: a change creates a
new index that shares the unchanged parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog_broker.runtime.addresses import plain_address
from oncelog_protocol.acls import (
    EVERYBODY,
    OPERATIONS,
    RESOURCE_TYPES,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from oncelog_protocol.light_classes import NamedTuple

Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
"""ACL entries by resource pattern; an empty value means that the pattern has ACLs that this release cannot decode.
ACLs that cannot be decoded may contain a denial. For a pattern with such ACLs, every operation on matching resources is
denied (S76), even if other ACLs allow it.
"""

_O = AclOperation
ALLOWING: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    **{operation: frozenset({operation, _O.ALL}) for operation in OPERATIONS},
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}
"""Maps an operation to the operations whose ACL allows it. This mapping is not used for denials: a denial applies only
to the operation that it names, or to ALL.
"""
NAME_OF_NOTHING: Final = "hardcode"
"""The resource name that Kafka uses to check whether a principal may do an operation on resources of any name."""


class Decision(NamedTuple):
    """A decision: whether the operation is allowed, and the ACL or rule that decided."""

    is_allowed: bool
    reason: str


ALLOWED_BY_DEFAULT: Final = Decision(True, "DefaultAllow")
DENIED_BY_DEFAULT: Final = Decision(False, "DefaultDeny")

_ByPrincipal = Mapping[str, tuple[AclEntry, ...]]


class _Patterns:
    """The patterns of one resource type, indexed by name. The patterns never change after the index is built."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self, literal: dict[str, _ByPrincipal], prefixed: dict[str, _ByPrincipal]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.lengths = sorted({len(prefix) for prefix in prefixed})

    def holding_for(self, name: str) -> Iterator[tuple[ResourcePattern, _ByPrincipal]]:
        """Yield the patterns that match `name`. The field `type` of the yielded patterns is a placeholder, because the
        caller knows the resource type.
        """
        found = self.literal.get(name)
        if found is not None:
            yield ResourcePattern(ResourceType.UNKNOWN, name, PatternType.LITERAL), found
        if name != WILDCARD and (found := self.literal.get(WILDCARD)) is not None:
            yield ResourcePattern(ResourceType.UNKNOWN, WILDCARD, PatternType.LITERAL), found
        for length in self.lengths:
            if length > len(name):
                break
            prefix = name[:length]
            if (found := self.prefixed.get(prefix)) is not None:
                yield ResourcePattern(ResourceType.UNKNOWN, prefix, PatternType.PREFIXED), found


NO_PATTERNS: Final = _Patterns({}, {})


class AclIndex:
    """Indexes ACLs by resource type, pattern type and name."""

    __slots__ = ("_acls", "_by_type")

    def __init__(self) -> None:
        self._acls: Acls = {}
        self._by_type: Mapping[ResourceType, _Patterns] = dict.fromkeys(RESOURCE_TYPES, NO_PATTERNS)

    def of(self, acls: Acls) -> AclIndex:
        """Return an index of these ACLs. Only the resource types whose ACLs have changed are indexed again; unchanged
        entries are recognised because they are the same objects as in this index.
        """
        changed = [(pattern, entries) for pattern, entries in acls.items() if self._acls.get(pattern) is not entries]
        gone = [pattern for pattern in self._acls if pattern not in acls]
        types = {pattern.type for pattern, _ in changed} | {pattern.type for pattern in gone}
        copies = {kind: (dict(self._by_type[kind].literal), dict(self._by_type[kind].prefixed)) for kind in types}
        for pattern in gone:
            copies[pattern.type][pattern.pattern is PatternType.PREFIXED].pop(pattern.name, None)
        for pattern, entries in changed:
            copies[pattern.type][pattern.pattern is PatternType.PREFIXED][pattern.name] = _by_principal(entries)
        index = AclIndex()
        index._acls = acls
        index._by_type = {**self._by_type, **{kind: _Patterns(*copy) for kind, copy in copies.items()}}
        return index

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str, *, default: Decision
    ) -> Decision:
        """Decide whether one operation is allowed. `principal` has the form `User:alice`, `host` the form that
        `plain_host` returns; `default` is the decision for a resource without ACLs.
        """
        decision = default
        for pattern, by_principal in self._by_type[kind].holding_for(name):
            if not by_principal:
                return Decision(False, f"ACLs that cannot be read: {kind.shown}:{pattern.pattern.name}:{pattern.name}")
            if decision is default:
                decision = DENIED_BY_DEFAULT  # a resource with ACLs needs an ACL that allows
            for entry in _entries_of(principal, by_principal):
                if entry.host not in (WILDCARD, host):
                    continue
                if entry.permission is AclPermission.DENY:
                    if entry.operation in (operation, AclOperation.ALL):
                        return Decision(False, _shown(pattern, kind, entry))
                elif entry.operation in ALLOWING[operation] and not decision.is_allowed:
                    decision = Decision(True, _shown(pattern, kind, entry))
        return decision

    def decide_for_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, *, default: Decision
    ) -> Decision:
        """Return whether the operation is allowed for any name at all (KIP-679): the result is True if the ACLs allow
        at least one name, or prefix of names, that no ACL denies entirely. As in Kafka, an ACL counts here only if it
        names this operation or ALL. An ACL whose operation only implies this operation (as READ implies DESCRIBE) does
        not count.
        """
        if self.decide(principal, host, operation, kind, NAME_OF_NOTHING, default=default).is_allowed:
            return ALLOWED_BY_DEFAULT
        patterns = self._by_type[kind]
        allowed, denied = _Names(), _Names()
        for where, place in ((patterns.literal, 0), (patterns.prefixed, 1)):
            for name, by_principal in where.items():
                if not by_principal:
                    denied[place].add(name)
                for entry in _entries_of(principal, by_principal):
                    if entry.host in (WILDCARD, host) and entry.operation in (operation, AclOperation.ALL):
                        (denied if entry.permission is AclPermission.DENY else allowed)[place].add(name)
        if WILDCARD in denied.literal:
            return DENIED_BY_DEFAULT
        if WILDCARD in allowed.literal:
            return ALLOWED_BY_DEFAULT
        for names, is_literal in ((allowed.literal, True), (allowed.prefixed, False)):
            for name in names:
                is_denied = (is_literal and name in denied.literal) or any(map(name.startswith, denied.prefixed))
                if not is_denied:
                    return ALLOWED_BY_DEFAULT
        return DENIED_BY_DEFAULT


class _Names(tuple[set[str], set[str]]):
    """Return two sets of resource names: the names in literal patterns, and the names in prefixed patterns."""

    __slots__ = ()

    def __new__(cls) -> _Names:
        return super().__new__(cls, (set[str](), set[str]()))

    @property
    def literal(self) -> set[str]:
        return self[0]

    @property
    def prefixed(self) -> set[str]:
        return self[1]


def plain_host(host: str) -> str:
    """Return the host of an ACL or client in normal form, for comparison. Kafka compares hosts as strings, with
    addresses in Java's notation; an ACL that matches a host in Kafka also matches the normalized host.
    """
    return plain_address(host) or host


def _by_principal(entries: frozenset[AclEntry]) -> _ByPrincipal:
    found: dict[str, list[AclEntry]] = {}
    for entry in entries:
        found.setdefault(entry.principal, []).append(entry._replace(host=plain_host(entry.host)))
    return {principal: tuple(some) for principal, some in found.items()}


def _entries_of(principal: str, by_principal: _ByPrincipal) -> Iterator[AclEntry]:
    yield from by_principal.get(principal, ())
    if principal != EVERYBODY:
        yield from by_principal.get(EVERYBODY, ())


def _shown(pattern: ResourcePattern, kind: ResourceType, entry: AclEntry) -> str:
    """Return the ACL as text: `Allow User:alice Read Topic:PREFIXED:orders from *`."""
    return (
        f"{entry.permission.shown} {entry.principal} {entry.operation.shown} "
        f"{kind.shown}:{pattern.pattern.name}:{pattern.name} from {entry.host}"
    )
