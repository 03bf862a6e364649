"""`oncelog reassign execute` reports only completed moves as done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import oncelog.admin
from oncelog.cli import move_progress, reassign
from oncelog.cli.reassignment_plan import to_json
from oncelog.cluster import TopicPartition

MOVED = TopicPartition("t", 0)


class CalledBack:
    """An Admin of a cluster in which a reassignment ends immediately and leaves the partition on `replicas`."""

    replicas: tuple[int, ...]

    def __init__(self, _: Any) -> None:
        self.is_altered = False

    async def __aenter__(self) -> CalledBack:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def describe_topics(self, topics: Any) -> dict[str, Any]:
        held = self.replicas if self.is_altered else (1,)
        return {name: SimpleNamespace(partitions={0: SimpleNamespace(replicas=held, isr=held)}) for name in topics}

    async def alter_partition_reassignments(self, *_: Any, **__: Any) -> None:
        self.is_altered = True

    async def list_partition_reassignments(self, *_: Any) -> dict[TopicPartition, Any]:
        return {}


@pytest.mark.parametrize(("replicas", "code", "said"), [((2,), 0, "done"), ((1,), 1, "not where the plan wants them")])
def test_finished_reassignments_are_reported_as_done(
    monkeypatch: pytest.MonkeyPatch, replicas: tuple[int, ...], code: int, said: str
) -> None:
    """A reassignment that another operator cancelled has ended, too."""
    monkeypatch.setattr(oncelog.admin, "Admin", type("Admin", (CalledBack,), {"replicas": replicas}))
    monkeypatch.setattr(reassign, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(move_progress, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(reassign, "HEARSAY_SECONDS", 0.002)
    result = CliRunner().invoke(reassign.reassign, ["execute", "-"], input=to_json({MOVED: (2,)}))
    assert (result.exit_code, said in result.output) == (code, True), result.output
    assert ("done" in result.output) is (code == 0)
