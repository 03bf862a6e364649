"""DeleteAcls (31): deletes the ACLs that filters match (KIP-140). `oncelog_protocol/acls.py` defines the numbers of
resource types, pattern types, operations and permissions.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """The filters; null matches any name, principal or host.

    v2: flexible. v3: resources of the type USER (KIP-373).
    """

    filters: list[DeleteAclsFilter] = array()

    @struct
    class DeleteAclsFilter:
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8(versions="1+", default=3)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """The deleted ACLs of each filter, in the order of the request.

    Errors: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED, INVALID_REQUEST, REQUEST_TIMED_OUT.
    """

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array()

    @struct
    class DeleteAclsFilterResult:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        matching_acls: list[DeleteAclsMatchingAcl] = array()

        @struct
        class DeleteAclsMatchingAcl:
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8(versions="1+", default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()
