"""The verdict of an audit has a row for each topic, counts all faults, and shows some; a topic with unread records
never passes.
"""

from __future__ import annotations

import pytest

from oncelog_pipeline.jobs.audit.command import show
from oncelog_pipeline.jobs.audit.verdict import MEANINGS, Audited, Count, Fault, Verdict

RIGHT = Verdict("producer", (Audited("orders", 10, 10, 2), Audited("new", 0, 0, 0)))
WRONG = Verdict(
    "key",
    (Audited("orders", 10, 9, 2, ("one is deleted",)), Audited("bills", 5, 5, 1)),
    (Count("gap", "orders", 30, 70), Count("disorder", "orders", 1, 1)),
    (Fault("gap", "orders", "k1", "orders-0, offset 5", 2),),
)


def test_the_verdict_counts_rows() -> None:
    assert RIGHT.is_right
    assert RIGHT.headings() == ("Topic", "Records", "Judged", "Producers", "Missing", "There again", "Verdict")
    assert RIGHT.rows() == [("orders", 10, 10, 2, 0, 0, "right"), ("new", 0, 0, 0, 0, 0, "empty")]
    assert not WRONG.is_right
    assert WRONG.headings()[3:] == ("Keys", "Missing", "There again", "Out of order", "Verdict")
    assert WRONG.rows() == [("orders", 10, 9, 2, 70, 0, 1, "WRONG"), ("bills", 5, 5, 1, 0, 0, 0, "right")]
    assert WRONG.sentences() == ["orders: one is deleted", "1 of 31 faults are shown"]


def test_an_undecidable_audit_is_not_right() -> None:
    unnumbered = Verdict("producer", (Audited("orders", 10, 0, 0),))
    assert not unnumbered.is_right
    assert unnumbered.rows()[0][-1] == "cannot be judged"


@pytest.mark.parametrize("form", ["table", "plain", "json"])
def test_the_verdict_is_shown(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(WRONG, form)
    out, err = capsys.readouterr()
    assert "orders-0, offset 5" in out
    assert "one is deleted" in (out if form == "json" else err)
    assert ("WRONG" in out + err) == (form != "json")


def test_every_kind_has_a_meaning() -> None:
    from oncelog_pipeline.jobs.audit.chains import Kind

    assert {kind.value for kind in Kind} < set(MEANINGS)
