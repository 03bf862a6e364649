"""DescribeAcls (29), v1-3: the ACLs that a filter matches, grouped by resource pattern (KIP-140, KIP-290).

Every broker responds from its cluster image. Version 3 has the USER resource type; earlier versions omit ACLs on
users.
"""

from __future__ import annotations

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access.acl_fields import FIRST_VERSION_WITH_USERS, LAST_TYPE_BEFORE_USERS, filter_of
from oncelog_broker.server.access.services import AccessContext
from oncelog_protocol.acls import AclFilter
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

Resource = DescribeAclsResponse.DescribeAclsResource


def handle(request: DescribeAclsRequest, context: AccessContext) -> Answer[DescribeAclsResponse]:
    try:
        context.require(rules.DESCRIBE_ACLS)
        if context.services.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
        wanted = filter_of(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message, resources=[])
    return context.in_slices(_matching(wanted, context))


def _matching(wanted: AclFilter, context: AccessContext) -> Steps[DescribeAclsResponse]:
    resources = []
    for pattern, entries in context.services.image.acls.items():
        yield None
        if context.version < FIRST_VERSION_WITH_USERS and pattern.type > LAST_TYPE_BEFORE_USERS:
            continue
        matching = sorted(filter(wanted.entry.matches, entries)) if wanted.pattern.matches(pattern) else ()
        if matching:
            resources.append(
                Resource(
                    resource_type=pattern.type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern,
                    acls=[
                        Resource.AclDescription(
                            principal=entry.principal,
                            host=entry.host,
                            operation=entry.operation,
                            permission_type=entry.permission,
                        )
                        for entry in matching
                    ],
                )
            )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, resources=resources)
