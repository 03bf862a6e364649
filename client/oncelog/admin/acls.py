"""ACLs: allowed and denied operations on resources (KIP-140, KIP-290): `admin.acls`.

The values are those of `oncelog_protocol.acls`: an AclBinding is an AclEntry (principal, host, operation, permission)
for a ResourcePattern (type, name, literal or prefixed). A field of a filter may be None or ANY, which matches any
value: EVERY_ACL matches all ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, answer_lacks, sorted_out
from oncelog.cluster import NO_NODE
from oncelog.errors import KafkaError, error_for
from oncelog_protocol.acls import (
    EVERY_ACL,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

E = TypeVar("E", ResourceType, PatternType, AclOperation, AclPermission)


class AclAdmin:
    """Each call is sent to an arbitrary broker. A broker without an authorizer responds with SECURITY_DISABLED, which
    raises KafkaError.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def describe(self, which: AclFilter = EVERY_ACL) -> list[AclBinding]:
        """Return the ACLs that the filter matches, sorted. Raises KafkaError."""
        from oncelog_protocol.messages.describe_acls import DescribeAclsRequest

        answer = await self._calls.send_to(
            NO_NODE,
            DescribeAclsRequest(
                resource_type_filter=which.pattern.type,
                resource_name_filter=which.pattern.name,
                pattern_type_filter=which.pattern.pattern,
                principal_filter=which.entry.principal,
                host_filter=which.entry.host,
                operation=which.entry.operation,
                permission_type=which.entry.permission,
            ),
        )
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message)
        return sorted(
            _binding(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
            for resource in answer.resources
            for acl in resource.acls
        )

    async def create(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs; existing ACLs are kept. Raises KafkaError, PartialFailure."""
        from oncelog_protocol.messages.create_acls import CreateAclsRequest

        async def ask(some: list[AclBinding]) -> Outcomes[AclBinding, None]:
            creations = [
                CreateAclsRequest.AclCreation(
                    resource_type=pattern.type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for pattern, entry in some
            ]
            answer = await self._calls.send_to(NO_NODE, CreateAclsRequest(creations=creations))
            return sorted_out(
                (acl, result.error_code, result.error_message, None)
                for acl, result in zip(some, answer.results, strict=False)
            )

        await self._calls.each(acls, ask, None)

    async def delete(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[AclBinding]]:
        """Delete the ACLs that the filters match, and return filter -> deleted ACLs; an ACL that several filters match
        is reported for one of them only.

        Raises KafkaError, PartialFailure.
        """
        from oncelog_protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

        def settled(result: DeleteAclsResponse.DeleteAclsFilterResult) -> list[AclBinding]:
            found = result.matching_acls
            for acl in found:
                if acl.error_code:
                    raise error_for(acl.error_code, acl.error_message)
            if result.error_code:
                raise error_for(result.error_code, result.error_message)
            return [_binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in found]

        async def ask(some: list[AclFilter]) -> Outcomes[AclFilter, list[AclBinding]]:
            wanted = [
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=pattern.type,
                    resource_name_filter=pattern.name,
                    pattern_type_filter=pattern.pattern,
                    principal_filter=entry.principal,
                    host_filter=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for pattern, entry in some
            ]
            answer = await self._calls.send_to(NO_NODE, DeleteAclsRequest(filters=wanted))
            results: dict[AclFilter, list[AclBinding]] = {}
            errors: dict[AclFilter, KafkaError] = {}
            for which, result in zip(some, answer.filter_results, strict=False):
                try:
                    results[which] = settled(result)
                except KafkaError as error:
                    errors[which] = error
            for which in some[len(answer.filter_results) :]:
                errors[which] = answer_lacks(which)
            return results, errors

        return await self._calls.each(filters, ask, None)


class _Entry(Protocol):
    """An ACL in a response: the fields that DescribeAcls and DeleteAcls have in common."""

    principal: str
    host: str
    operation: int
    permission_type: int


def _binding(kind: int, name: str, pattern: int, acl: _Entry) -> AclBinding:
    """Return the ACL in a response; unknown values of a newer broker become UNKNOWN."""
    return AclBinding(
        ResourcePattern(_of(ResourceType, kind), name, _of(PatternType, pattern)),
        AclEntry(acl.principal, acl.host, _of(AclOperation, acl.operation), _of(AclPermission, acl.permission_type)),
    )


def _of(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        return kind(0)
