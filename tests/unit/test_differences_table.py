"""docs/differences.md and the known differences in the comparison with Apache Kafka are the same."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.interop.differential.comparison import Difference, compare
from tests.interop.differential.coverage import missing_versions
from tests.interop.differential.known import KNOWN, OBLIGED, OPTIONAL, STAYING
from tests.interop.differential.known.pending import COMING, GOING, PENDING
from tests.interop.differential.register import NOWHERE, Known, shares_an_area, stale, unexplained
from tests.interop.differential.scenario import Outcome
from tests.interop.differential.scenarios import CONFIGURED, SCENARIOS, SECURED
from tests.interop.differential.side import Step

from oncelog_protocol.api import ApiKey

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| .+ \| .+ \| \*\*(?:Better|Deliberate|Harmless)\*\*.* \|$", re.MULTILINE)


def rows() -> list[str]:
    return ROW.findall(DOCUMENT.read_text())


def test_each_row_has_entries_and_each_entry_a_row() -> None:
    assert set(rows()) == {entry.row for entry in (*STAYING, *OBLIGED, *COMING)}
    assert [name for name, count in Counter(rows()).items() if count > 1] == []
    assert len(rows()) == len(re.findall(r"^\| `", DOCUMENT.read_text(), re.MULTILINE)), "a row without a verdict"


def test_a_temporary_difference_has_no_row() -> None:
    assert {entry.row for entry in GOING}.isdisjoint(rows())


def test_no_difference_is_pending() -> None:
    assert not PENDING


def test_each_row_must_show_itself_in_a_scenario() -> None:
    due = [entry for entry in STAYING if entry.must_show_in != NOWHERE]
    assert {entry.row for entry in STAYING} == {entry.row for entry in due}
    walks = [scenario.name for scenario in (*SCENARIOS, *CONFIGURED) if scenario.is_random]
    assert not [entry for entry in due if any(fnmatchcase(walk, entry.must_show_in) for walk in walks)]


@pytest.mark.parametrize("entry", OPTIONAL, ids=str)
def test_a_setting_that_takes_a_difference_away_is_named_in_its_row(entry: Known) -> None:
    (row,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{entry.row}` ")]
    assert f"`{entry.setting}`" in row


def test_differences_that_need_settings_have_scenarios_with_them() -> None:
    assert not [entry for entry in OBLIGED if not shares_an_area(entry.must_show_in, OPTIONAL)]


@pytest.mark.parametrize("entry", (*KNOWN, *OBLIGED), ids=str)
def test_each_entry_is_of_a_scenario_that_there_is(entry: Known) -> None:
    for pattern in {entry.scenario, entry.must_show_in} - {NOWHERE}:
        assert any(fnmatchcase(scenario.name, pattern) for scenario in (*SCENARIOS, *SECURED, *CONFIGURED)), pattern


def test_the_names_of_scenarios_are_their_own() -> None:
    names = Counter(one.name for one in (*SCENARIOS, *SECURED, *CONFIGURED))
    assert [name for name, count in names.items() if count > 1] == []


def test_versions_that_nobody_asked_for_are_missed() -> None:
    missing = missing_versions({(ApiKey.PRODUCE, version) for version in range(3, 13)})
    assert "Produce v13" in missing
    assert "Produce v12" not in missing


def step(answer: object, label: str = "") -> Step:
    return Step("Produce", 11, label, answer)


def found(kafka: object, ours: object) -> list[tuple[str, object, object]]:
    return [(one.field, one.kafka, one.ours) for one in compare("area.what", [step(kafka)], [step(ours)])]


def test_elements_are_paired_by_name() -> None:
    kafka = {"topics": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}
    ours = {"topics": [{"name": "b", "n": 3}, {"name": "a", "n": 1}]}
    assert found(kafka, ours) == [("topics.b.n", 2, 3)]
    assert found(kafka, {"topics": [{"name": "a", "n": 1}]}) == [("topics.b", {"name": "b", "n": 2}, "absent")]


def test_an_error_stands_for_its_element() -> None:
    assert found({"error_code": 1, "n": 1}, {"error_code": 0, "n": 2}) == [("error_code", 1, 0)]
    assert found({"error_code": 1, "n": 1}, {"error_code": 1, "n": 2}) == [("n", 1, 2)]


def test_a_deviating_or_silent_broker_is_noticed() -> None:
    assert found("no answer", {"n": 1}) == [("", "no answer", {"n": 1})]
    assert [one.field for one in compare("area.what", [step(1, "x")], [step(1, "y")])] == ["question"]
    assert [one.field for one in compare("area.what", [step(1), step(2)], [step(1)])] == ["steps"]


def test_a_difference_without_entry_and_an_entry_without_difference_are_seen() -> None:
    entry = Known("row", "area.what", "error_code", 1, 0, label="odd *")
    odd = Difference("area.what", step(None, "odd one"), "topics.a.error_code", 1, 0)
    other = Difference("area.what", step(None, "odd one"), "topics.a.error_code", 1, 5)
    outcome = Outcome((odd, other), 2, frozenset())
    assert unexplained(outcome, (entry,)) == [other]
    assert stale("area.what", outcome, (entry,)) == []
    assert stale("area.what", Outcome((other,), 1, frozenset()), (entry,)) == [entry]
    assert stale("area.else", Outcome((), 1, frozenset()), (entry,)) == []
