"""Who asked for what, and whether they got it: the log `kafka.authorizer.logger`, as in Kafka.

What is denied is told at INFO, what is allowed at DEBUG. A request may name any number of things, so of one request
only so many refusals are told.
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
"""Of one request."""


def tell(principal: Principal, host: str, rule: Rule, name: str, decision: Decision) -> None:
    """Write it down. The name is the client's: the log writes it in quotes where that is needed."""
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
    """That further refusals of the same request are not told."""
    audit_log.info(
        "denied more of the same request",
        extra={"principal": principal, "host": host, "request": ApiKey(rule.api).message_name},
    )
