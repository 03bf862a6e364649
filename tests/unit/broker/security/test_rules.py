"""The table of authorizations: every API has its rows, and the API's handler checks every row.

`tests/unit/test_reference.py` checks that docs/authorizations.md agrees with the table.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import oncelog_broker.server
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.served import SERVED, Served

SERVER = Path(oncelog_broker.server.__file__).parent
OF_SERVED = [rule for rule in rules.RULES if rule.api in SERVED]


def names_of_rules() -> dict[Rule, str]:
    return {value: name for name, value in vars(rules).items() if isinstance(value, Rule)}


def handler_of(served: Served) -> Path:
    return SERVER.joinpath(*served.module.split(".")).with_suffix(".py")


def rules_asked_in(path: Path) -> set[str]:
    """Return the names of the rules that a module uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rules"
    }


@pytest.mark.parametrize("served", SERVED.values(), ids=lambda served: served.key.name)
def test_every_served_api_has_a_rule_or_a_reason(served: Served) -> None:
    has_rule = any(rule.api is served.key for rule in rules.RULES)
    assert has_rule != (served.key in rules.WITHOUT_RULE)


@pytest.mark.parametrize("rule", OF_SERVED, ids=lambda rule: f"{rule.api.name}-{rule.operation.name}-{rule.when}")
def test_every_rule_is_asked_by_the_handler_of_its_api(rule: Rule) -> None:
    modules = [handler_of(SERVED[rule.api]), SERVER / "records" / "fetch_reads.py"]
    assert any(names_of_rules()[rule] in rules_asked_in(module) for module in modules)


def test_no_handler_asks_by_the_rule_of_another_api() -> None:
    own = {name: rule.api for rule, name in names_of_rules().items()}
    for served in SERVED.values():
        asked = rules_asked_in(handler_of(served)) & own.keys()
        assert {own[name] for name in asked} <= {served.key}, served.module
