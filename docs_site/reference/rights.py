"""The table of docs/authorizations.md: the rights that each API needs."""

from __future__ import annotations

from docs_site.reference.markdown import table
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.served import SERVED


def rights() -> str:
    rows = []
    for rule in sorted((rule for rule in rules.RULES if rule.api in SERVED), key=lambda rule: rule.api):
        refusal = rules.shown_answer(rule).replace("_", r"\_")
        asked = [rule.operation.shown, rule.resource.shown, rule.when, refusal]
        rows.append([rule.api.message_name, str(int(rule.api)), *asked])
    rows += [
        [api.message_name, str(int(api)), "nothing", "", "", reason]
        for api, reason in rules.WITHOUT_RULE.items()
        if api in SERVED
    ]
    return table(["API", "Key", "Asks for", "On", "When", "Refused"], rows)
