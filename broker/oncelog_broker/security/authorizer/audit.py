"""The audit log of authorization decisions, `kafka.authorizer.logger`, as in Kafka.

Denials are logged at INFO, approvals at DEBUG. A request may name any number of resources, so its logged denials are
limited.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from oncelog_protocol.api import ApiKey

if TYPE_CHECKING:
    from oncelog_broker.security.authorizer.acl_index import Decision
    from oncelog_broker.security.authorizer.rules import Rule
    from oncelog_broker.security.principal import Principal

audit_log: Final = logging.getLogger("kafka.authorizer.logger")
REFUSALS_TOLD: Final = 10
"""Limit on the denials that are logged for one request."""


def tell(principal: Principal, host: str, rule: Rule, name: str, decision: Decision) -> None:
    """Log one decision. The resource name comes from the client, so it is quoted in the log if necessary."""
    audit_log.log(
        logging.DEBUG if decision.is_allowed else logging.INFO,
        "allowed" if decision.is_allowed else "denied",
        extra={
            "principal": principal,
            "operation": rule.operation.shown,
            "host": host,
            "resource": f"{rule.resource.shown}:{name}",
            "request": ApiKey(rule.api).message_name,
            "rule": decision.reason,
        },
    )


def tell_of_more(principal: Principal, host: str, rule: Rule) -> None:
    """Log one line which says that further denials of this request are not logged."""
    audit_log.info(
        "denied more of the same request",
        extra={"principal": principal, "host": host, "request": ApiKey(rule.api).message_name},
    )
