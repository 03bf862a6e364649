"""DeleteAcls (31), v1-3: remove the ACLs that filters match (KIP-140, KIP-290).

Behaviour: an ACL that several filters match appears in the result of only one of them. Filters that name one pattern
are compared with the store, so that no ACL of this pattern is missed; the other filters are compared with this broker's
cluster image. Every broker serves this request.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access.acl_fields import filter_of
from oncelog_broker.server.access.create_acls import NAMES_OF_NO_NODE, until_decided_by
from oncelog_broker.server.access.services import AccessContext
from oncelog_protocol.acls import AclEntry, AclFilter, EntryFilter, ResourcePattern, filters_matching
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

Result = DeleteAclsResponse.DeleteAclsFilterResult
Matching = Result.DeleteAclsMatchingAcl
Numbered = tuple[AclFilter, Result]


def handle(request: DeleteAclsRequest, context: AccessContext) -> Answer[DeleteAclsResponse]:
    return context.in_a_task(_delete(request, context))


async def _delete(request: DeleteAclsRequest, context: AccessContext) -> DeleteAclsResponse:
    pauses, services = context.services.slices.pauses(), context.services
    may = context.may(rules.DELETE_ACLS)
    response = DeleteAclsResponse(filter_results=[])
    filters = list[Numbered]()
    for asked in request.filters:
        await pauses.here()
        result = Result(error_code=ErrorCode.NONE, matching_acls=[])
        response.filter_results.append(result)
        try:
            if not may:
                raise KafkaError(rules.DELETE_ACLS.refused)
            if services.authorizer is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
            filters.append((filter_of(asked), result))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    touched = False
    for pattern, matching in (await _patterns(filters, context)).items():
        touched = await _delete_of(pattern, matching, context) or touched
    if touched:
        await until_decided_by(context)
    return response


async def _patterns(filters: Sequence[Numbered], context: AccessContext) -> dict[ResourcePattern, list[Numbered]]:
    """Return the resource patterns that the filters may match, each with the filters that may match its ACLs."""
    pauses = context.services.slices.pauses()
    patterns: dict[ResourcePattern, list[Numbered]] = {}
    searching = []
    for number, (wanted, _) in enumerate(filters):
        await pauses.here()
        kind, name, how = wanted.pattern
        if not wanted.pattern.names_one:
            searching.append(number)
        elif name and "/" not in name and "\0" not in name and name not in NAMES_OF_NO_NODE:
            patterns.setdefault(ResourcePattern(kind, name, how), []).append(filters[number])
    for pattern in context.services.image.acls if searching else ():
        matching = []
        for number in searching:
            await pauses.here()
            if filters[number][0].pattern.matches(pattern):
                matching.append(filters[number])
        if matching:
            patterns[pattern] = patterns.get(pattern, []) + matching
    return patterns


async def _delete_of(pattern: ResourcePattern, filters: Sequence[Numbered], context: AccessContext) -> bool:
    """Delete the ACLs of one resource pattern that match a filter, and add the deleted ACLs to the results. Returns
    whether any ACL was deleted.
    """

    results: dict[EntryFilter, Result] = {}
    for wanted, result in filters:
        results.setdefault(wanted.entry, result)

    def rest(before: frozenset[AclEntry]) -> frozenset[AclEntry]:
        return frozenset(
            entry for entry in before if not any(matching in results for matching in filters_matching(entry))
        )

    code, message = ErrorCode.NONE, None
    try:
        before = await context.services.acls.change(pattern, rest)
    except KafkaError as error:
        code, message, before = error.code, error.message, context.services.image.acls.get(pattern, frozenset())
    told = sorted(before - rest(before))
    for entry in told:
        first = next(results[matching] for matching in filters_matching(entry) if matching in results)
        first.matching_acls.append(
            Matching(
                error_code=code,
                error_message=message,
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return bool(told)
