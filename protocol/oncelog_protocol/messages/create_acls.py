"""CreateAcls (30): adds ACLs (KIP-140). `oncelog_protocol/acls.py` defines the numbers of resource types, pattern
types, operations and permissions.
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    """The ACLs to create; an ACL that already exists is no error.

    v2: flexible. v3: resources of the type USER (KIP-373).
    """

    creations: list[AclCreation] = array()

    @struct
    class AclCreation:
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8(versions="1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """The response has one result per ACL, in the order of the request.

    Errors: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED, INVALID_REQUEST, REQUEST_TIMED_OUT.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array()

    @struct
    class AclCreationResult:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
