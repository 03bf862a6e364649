"""The page of rules: every rule, scenario and trap of exactly once, which modules keep it, and which tests show it.

The texts are in `rules.toml`. A test is named after its rules, `test_s34_e17_...`, so no list is needed. The page in
docs/ has the number of a rule's tests; the site, which is committed nowhere, has their names, too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path, PurePath
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = Path(__file__).parent / "rules.toml"
LEVELS: Final = {"unit": "unit", "property": "property", "simulation": "simulated"}
"""The levels of tests, by their folders in tests/."""
LIVE: Final = "live"
"""The level of the tests in all other folders: they start brokers, clients or other programs as processes."""
_RULE_IN_NAME: Final = re.compile(r"[set]\d+")

INTRODUCTION: Final = """\
[Exactly once](../exactly-once.md) rests on these rules. Each rule has the modules that enforce it, and the tests that
fail when it is broken: *unit* tests, *property* tests, *simulated* clusters, and *live* brokers and clients. Names with
S are rules, names with E are scenarios that went wrong elsewhere, and names with T are [traps of the
protocol](../protocol-traps.md) that affect exactly once. Source and tests cite rules by these names.

`pytest -k s34_` runs the tests that are named after S34. `make test` runs most of these tests, `make soak` the others;
the site that `make docs` builds lists the tests below each rule.
"""


class NamedTest(NamedTuple):
    """`file::name`; a class around it is omitted."""

    file: str
    name: str


class Rule(NamedTuple):
    name: str
    holds: str
    went_wrong: str
    """For scenarios: what went wrong elsewhere."""
    kept_by: list[str]
    """Paths of modules in the repository."""
    named_otherwise: list[NamedTest]
    """Its tests that are not named after it."""


class Section(NamedTuple):
    title: str
    introduction: str
    rules: list[Rule]


def sections() -> list[Section]:
    """The content of `rules.toml`. Raises KeyError, TypeError for a rule with missing or unknown fields."""
    found = []
    for section in tomllib.loads(SOURCE.read_text())["sections"]:
        rules = [_rule(**declared) for declared in section["rules"]]
        found.append(Section(section["title"], section.get("introduction", ""), rules))
    return found


def _rule(name: str, holds: str, kept_by: list[str], went_wrong: str = "", tests: list[str] | None = None) -> Rule:
    return Rule(name, holds, went_wrong, kept_by, [_test(test) for test in tests or ()])


def _test(text: str) -> NamedTest:
    file, name = text.split("::")
    return NamedTest(file, name)


def all_rules() -> list[Rule]:
    return [rule for section in sections() for rule in section.rules]


@cache
def all_tests() -> frozenset[NamedTest]:
    """Every test of the repository."""
    return frozenset(
        NamedTest(str(path.relative_to(ROOT)), name)
        for path in (ROOT / "tests").rglob("*.py")
        for name in _names_of(ast.parse(path.read_text()).body)
    )


def _names_of(body: list[ast.stmt]) -> Iterator[str]:
    """Names of test functions, also in classes, and of the classes that Hypothesis makes from state machines."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _names_of(statement.body)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name.startswith("test_"):
            yield statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id


def rules_in_name(test: str) -> list[str]:
    """The rules in a test's name: `test_s34_e17_...`, `test_s7_to_s13_...`."""
    found = []
    for part in test.split("_")[1:]:
        if _RULE_IN_NAME.fullmatch(part):
            found.append(part.upper())
        elif part != "to":
            break
    return found


@cache
def _tests_by_rule() -> dict[str, list[NamedTest]]:
    found: dict[str, list[NamedTest]] = {}
    for test in all_tests():
        for rule in rules_in_name(test.name):
            found.setdefault(rule, []).append(test)
    return found


def tests_of(rule: Rule) -> list[NamedTest]:
    """The tests named after the rule, and the tests that `rules.toml` names, by file."""
    return sorted({*_tests_by_rule().get(rule.name, ()), *rule.named_otherwise})


def document(*, names_tests: bool = False) -> str:
    """The page, as it is in docs/, or with the names of all tests."""
    parts = ["# Rules of exactly once\n", INTRODUCTION]
    for section in sections():
        parts.append(f"## {section.title}\n")
        if section.introduction:
            parts.append(f"{section.introduction}\n")
        parts += [_shown(rule, names_tests) for rule in section.rules]
    return "\n".join(parts)


def _shown(rule: Rule, names_tests: bool) -> str:
    tests = tests_of(rule)
    count = _counted(tests)
    kept_by = ", ".join(f"[{_short(path)}](../../{path})" for path in rule.kept_by)
    went_wrong = f"*{_sentence(rule.went_wrong)}*\n\n" if rule.went_wrong else ""
    shown = f"### {rule.name}\n\n{went_wrong}{_sentence(rule.holds)}\n\nEnforced by {kept_by}"
    if not names_tests:
        return f"{shown}; {count}.\n"
    return f'{shown}.\n\n<details markdown="1">\n<summary>{count}</summary>\n\n{_listed(tests)}\n\n</details>\n'


def _counted(tests: list[NamedTest]) -> str:
    """The number of the tests, and how many are of which level: `5 tests (3 unit, 2 live)`."""
    levels = Counter(LEVELS.get(PurePath(test.file).parts[1], LIVE) for test in tests)
    of_levels = ", ".join(f"{levels[level]} {level}" for level in (*LEVELS.values(), LIVE) if levels[level])
    return f"{len(tests)} test{'s' if len(tests) != 1 else ''} ({of_levels})"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _short(path: str) -> str:
    """Return the path without `.py`, and without the two directories of a package; of an example the entire path."""
    parts = PurePath(path).with_suffix("").parts
    return "/".join(parts[2:] or parts)


def _listed(tests: list[NamedTest]) -> str:
    lines = []
    for file, of_file in groupby(tests, key=lambda test: test.file):
        lines.append(f"- [{file}](../../{file})")
        lines += [f"    - `{test.name}`" for test in of_file]
    return "\n".join(lines)
