"""What a task of the sink does in its process before it writes the first row."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from oncelog_pipeline.options.sink_options import SinkOptions
from oncelog_pipeline.spark import writers


class NoTask(Exception):
    """Ends `write` at the point at which it asks for its task."""


@pytest.mark.parametrize("kind", [writers.BatchWriter, writers.StreamWriter])
def test_a_task_keeps_freed_memory_before_it_reads_rows(
    kind: type[writers.Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def no_task() -> None:
        steps.append("task")
        raise NoTask

    monkeypatch.setattr(writers, "keep_freed_memory", lambda: steps.append("keep"))
    monkeypatch.setattr(writers, "this_attempt", no_task)
    with pytest.raises(NoTask):
        kind(SinkOptions("a:1", "topic")).write(iter(()))
    assert steps == ["keep", "task"]
