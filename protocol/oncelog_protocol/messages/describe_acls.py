"""DescribeAcls (29): returns the ACLs that a filter matches (KIP-140). `oncelog_protocol/acls.py` defines the numbers
of resource types, pattern types, operations and permissions.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """The filter; null matches any name, principal or host.

    v2: flexible. v3: resources of the type USER (KIP-373).
    """

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(versions="1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The ACLs, grouped by resource pattern.

    Errors: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED (the broker has no authorizer), INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = array()

    @struct
    class DescribeAclsResource:
        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8(versions="1+", default=3)
        acls: list[AclDescription] = array()

        @struct
        class AclDescription:
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()
