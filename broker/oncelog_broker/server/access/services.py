"""Services for handlers of users, ACLs and quotas."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from oncelog_broker.controller.acls import AclController
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.server.request.context import CommonServices, RequestContext


class AccessServices(CommonServices, Protocol):
    """The parts of the broker that handlers of users, ACLs and quotas may use, in addition to CommonServices."""

    configs: ConfigController
    acls: AclController


AccessContext: TypeAlias = RequestContext[AccessServices]
