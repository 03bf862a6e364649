"""docs/reference/rules.md tells the truth: every rule is there, what it names exists, and every test of it is named.

`test_reference.py` holds the page to `rules.toml` and to the tests that there are.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from docs_site.reference import rules
from docs_site.reference.pages import DOCS
from docs_site.reference.rules import ROOT, Rule, all_rules, all_tests, rules_in_name

PAGE = DOCS / "reference" / "rules.md"
RULES = [f"S{number}" for number in (*range(1, 15), *range(20, 47), *range(50, 68), *range(70, 82), *range(85, 99))]
SCENARIOS = [f"E{number}" for number in (*range(1, 34), *range(40, 50), *range(53, 59))]
TRAPS = [f"T{number}" for number in (6, 7, 8, 17, 18, 21, 28)]


def section_of(rule: Rule) -> str:
    """What the page says of it."""
    found = re.search(rf"^### {rule.name}$(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/rules.md has no {rule.name}"
    return found[1]


def _number(name: str) -> int:
    return int(name[1:])


def test_every_rule_is_there_once() -> None:
    counts = Counter(rule.name for rule in all_rules())
    assert [name for name, count in counts.items() if count > 1] == []
    # Sections are by subject, so rules of one kind need not stand in the order of their numbers.
    assert sorted((name for name in counts if name[0] == "S"), key=_number) == RULES
    assert sorted((name for name in counts if name[0] == "E"), key=_number) == SCENARIOS
    assert [name for name in counts if name[0] == "T"] == TRAPS
    assert re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE) == [rule.name for rule in all_rules()]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_a_rule_says_what_holds_where_and_how_that_is_shown(rule: Rule) -> None:
    assert rule.holds.strip()
    assert bool(rule.went_wrong.strip()) == (rule.name[0] == "E")
    assert rule.kept_by
    assert rules.tests_of(rule)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_what_a_rule_names_exists(rule: Rule) -> None:
    assert [path for path in rule.kept_by if not (ROOT / path).is_file()] == []
    assert [test for test in rule.named_otherwise if test not in all_tests()] == []
    assert [test for test in rule.named_otherwise if rule.name in rules_in_name(test.name)] == [], "found by its name"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_the_page_names_every_test_of_a_rule(rule: Rule) -> None:
    section = section_of(rule)
    for test in all_tests():
        if rule.name in rules_in_name(test.name) or test in rule.named_otherwise:
            after_its_file = section.partition(f"- [{test.file}](../../{test.file})\n")[2].partition("\n- ")[0]
            assert f"`{test.name}`" in after_its_file, f"docs/reference/rules.md, {rule.name}: make reference"
    listed = re.findall(r"^    - `(\w+)`$", section, re.MULTILINE)
    assert len(listed) == len(rules.tests_of(rule))


def test_no_test_is_named_after_a_rule_that_there_is_not() -> None:
    known = {rule.name for rule in all_rules()}
    assert [str(test) for test in sorted(all_tests()) if not known.issuperset(rules_in_name(test.name))] == []


def test_the_rules_in_a_name() -> None:
    assert rules_in_name("test_s34_e17_the_s5_is_no_row") == ["S34", "E17"]
    assert rules_in_name("test_s7_to_s13_as_a_model") == ["S7", "S13"]
    assert rules_in_name("test_every_row") == []
