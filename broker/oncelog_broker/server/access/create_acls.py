"""CreateAcls (30), v1-3: add ACLs (KIP-140, KIP-290).

Behaviour: each ACL succeeds or fails independently; the ACLs of one pattern are written together. Creating an ACL that
exists is no error. The response is sent when this broker's authorization decisions use the new ACLs. Every broker
serves this request.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.metadata.stores.store import StoreUnavailable
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.principal import parse_principal
from oncelog_broker.server.access.acl_fields import entry_of, pattern_of
from oncelog_broker.server.access.services import AccessContext
from oncelog_protocol.acls import CLUSTER_NAME, AclEntry, ResourcePattern, ResourceType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

Creation = CreateAclsRequest.AclCreation
Result = CreateAclsResponse.AclCreationResult
NAMES_OF_NO_NODE: Final = frozenset({".", ".."})


def handle(request: CreateAclsRequest, context: AccessContext) -> Answer[CreateAclsResponse]:
    return context.in_a_task(_create(request, context))


async def _create(request: CreateAclsRequest, context: AccessContext) -> CreateAclsResponse:
    pauses, services = context.services.slices.pauses(), context.services
    results = []
    wanted: dict[ResourcePattern, dict[AclEntry, list[Result]]] = {}
    may = context.may(rules.CREATE_ACLS)
    for creation in request.creations:
        await pauses.here()
        result = Result(error_code=ErrorCode.NONE)
        results.append(result)
        try:
            if not may:
                raise KafkaError(rules.CREATE_ACLS.refused)
            if services.authorizer is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
            pattern, entry = _checked(creation)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted.setdefault(pattern, {}).setdefault(entry, []).append(result)
    for pattern, asked in wanted.items():
        new = frozenset(asked)
        try:
            await services.acls.change(pattern, lambda before, new=new: before | new)  # type: ignore[misc]
        except KafkaError as error:
            for result in (result for results_of_one in asked.values() for result in results_of_one):
                result.error_code, result.error_message = error.code, error.message
    if wanted:
        await until_decided_by(context)
    return CreateAclsResponse(results=results)


async def until_decided_by(context: AccessContext) -> None:
    """Wait until this broker's authorization decisions use all ACLs that were written before the call; does not wait if
    the store is unavailable.
    """
    try:
        await context.services.metadata.synced()
    except StoreUnavailable:
        return  # no error, because the metadata store has the ACLs


def _checked(creation: Creation) -> tuple[ResourcePattern, AclEntry]:
    """Return the resource pattern and the entry of an ACL. Raises KafkaError INVALID_REQUEST if the ACL cannot be
    created.
    """
    pattern, entry = pattern_of(creation), entry_of(creation)
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if "/" in pattern.name or "\0" in pattern.name or pattern.name in NAMES_OF_NO_NODE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"ACLs for a resource named {pattern.name!r} cannot be stored.")
    try:
        parse_principal(entry.principal)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not entry.host:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ACL is for one host, or for all (*).")
    return pattern, entry
