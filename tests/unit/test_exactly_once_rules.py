"""The page of rules is complete: the page has each rule exactly once, all files that it names exist, and it counts all
tests of each rule.

`test_reference.py` checks docs/reference/rules.md against `rules.toml` and the existing tests.
"""

from __future__ import annotations

import re
from collections import Counter

from docs_site.reference import rules
from docs_site.reference.rules import ROOT, Rule, all_rules, all_tests, rules_in_name

RULES = [
    f"S{number}"
    for number in (*range(1, 15), *range(20, 47), *range(50, 68), *range(70, 82), *range(85, 99), *range(120, 125))
]
SCENARIOS = [f"E{number}" for number in (*range(1, 34), *range(40, 50), *range(53, 60))]
TRAPS = [f"T{number}" for number in (6, 7, 8, 17, 18, 21, 28)]


def section_of(rule: Rule, page: str) -> str:
    """Return the section of the page about a rule."""
    found = re.search(rf"^### {rule.name}$(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no {rule.name}"
    return found[1]


def _number(name: str) -> int:
    return int(name[1:])


def test_every_rule_is_there_once() -> None:
    counts = Counter(rule.name for rule in all_rules())
    assert [name for name, count in counts.items() if count > 1] == []
    # Sections are sorted by subject, so rules need not be in the order of their numbers.
    assert sorted((name for name in counts if name[0] == "S"), key=_number) == RULES
    assert sorted((name for name in counts if name[0] == "E"), key=_number) == SCENARIOS
    assert [name for name in counts if name[0] == "T"] == TRAPS
    assert re.findall(r"^### (\w+)$", rules.document(), re.MULTILINE) == [rule.name for rule in all_rules()]


def test_a_rule_says_what_holds_where_and_how_that_is_shown() -> None:
    incomplete = [
        rule.name for rule in all_rules() if not (rule.holds.strip() and rule.kept_by and rules.tests_of(rule))
    ]
    assert incomplete == []
    # Only scenarios (E) say what went wrong in other systems.
    assert [rule.name for rule in all_rules() if bool(rule.went_wrong.strip()) != (rule.name[0] == "E")] == []


def test_tests_named_by_a_rule_exist() -> None:
    named = [(rule, test) for rule in all_rules() for test in rule.named_otherwise]
    assert [(rule.name, path) for rule in all_rules() for path in rule.kept_by if not (ROOT / path).is_file()] == []
    assert [(rule.name, str(test)) for rule, test in named if test not in all_tests()] == []
    assert [(rule.name, str(test)) for rule, test in named if rule.name in rules_in_name(test.name)] == [], (
        "found by name"
    )


def test_the_page_counts_the_tests_of_a_rule() -> None:
    page = rules.document()
    for rule in all_rules():
        count = len(rules.tests_of(rule))
        ending = section_of(rule, page).rstrip().rpartition("; ")[2]
        told = re.fullmatch(r"(\d+) tests? \((.+)\)\.", ending)
        assert told is not None, rule.name
        levels = sum(int(each.split()[0]) for each in told[2].split(", "))
        assert (int(told[1]), levels) == (count, count), rule.name
    assert not re.search(r"`test_", page), "the names are in the site alone"


def test_the_site_names_every_test_of_a_rule() -> None:
    page = rules.document(names_tests=True)
    for rule in all_rules():
        section = section_of(rule, page)
        of_rule = [
            each for each in all_tests() if rule.name in rules_in_name(each.name) or each in rule.named_otherwise
        ]
        for test in of_rule:
            after_its_file = section.partition(f"- [{test.file}](../../{test.file})\n")[2].partition("\n- ")[0]
            assert f"`{test.name}`" in after_its_file, rule.name
        assert len(re.findall(r"^    - `(\w+)`$", section, re.MULTILINE)) == len(of_rule), rule.name


def test_no_test_is_named_after_a_rule_that_does_not_exist() -> None:
    known = {rule.name for rule in all_rules()}
    assert [str(test) for test in sorted(all_tests()) if not known.issuperset(rules_in_name(test.name))] == []


def test_the_rules_cited_by_a_test_name_are_parsed() -> None:
    assert rules_in_name("test_s34_e17_the_s5_is_no_row") == ["S34", "E17"]
    assert rules_in_name("test_s7_to_s13_as_a_model") == ["S7", "S13"]
    assert rules_in_name("test_every_row") == []
