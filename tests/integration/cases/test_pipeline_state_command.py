"""Tests, against a live broker, `oncelog pipeline state`: the command that the error of a refused start names."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import replace

import pytest
from spark_sink_process import Abort, Commit, Task, run
from test_spark_sink import Sink, batches
from warm_commands import run_oncelog_text

from oncelog_pipeline.sink.names import unnamed_query
from oncelog_pipeline.sink.operations import BatchDiffers, StateLost
from oncelog_pipeline.sink.state import Batch


def oncelog(address: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_oncelog_text("pipeline", "state", *arguments, "--bootstrap-server", address)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
async def sink(address: str, topic: str) -> Sink:
    made = Sink(address, topic)
    await made.create()
    return made


async def test_decided_batches_are_shown_and_reset(sink: Sink, address: str) -> None:
    name, first = sink.query.name, sink.new_run(0)
    for number in range(2):
        await sink.replay(replace(first, number=number))
    rows = json.loads(oncelog(address, "list", "--output", "json").stdout)
    (row,) = [each for each in rows if each["query"] == name]
    assert (row["batch"], row["rows"], row["transactions"], row["run"]) == (1, 90, 3, first.run)
    shown = oncelog(address, "show", name, "--output", "plain").stdout.splitlines()
    assert [line.split("\t")[:2] for line in shown] == [["0", "30"], ["1", "30"], ["2", "30"]]

    # The last entry of Spark's checkpoint was incomplete, so Spark plans batch 1 again: the batch now has one task
    # fewer, and thus other rows in each task.
    again = sink.new_run(1)
    with pytest.raises(BatchDiffers, match=f"oncelog pipeline state reset {name} --batch 0"):
        await sink.commit(again, await sink.tasks(again, range(2)))
    assert "nothing was changed: add --execute" in oncelog(address, "reset", name, "--batch", "1").stderr
    with pytest.raises(BatchDiffers):
        await sink.commit(again, await sink.tasks(again, range(2)))
    oncelog(address, "reset", name, "--batch", "1", "--execute")
    again = sink.new_run(1)
    await sink.commit(again, await sink.tasks(again, range(2)))
    await sink.replay(replace(again, number=2))
    assert await sink.seen() == batches(0, 1, 2)
    assert "no state of query unknown found" in oncelog(address, "show", "unknown", code=1).stderr


async def test_a_write_without_a_name_is_finished(sink: Sink, address: str) -> None:
    run_id = str(uuid.uuid4())
    orphan = Batch(unnamed_query(run_id), run_id, 0)
    messages = await sink.tasks(orphan)
    sink.dies(Commit(orphan, messages), "one ended")
    done = oncelog(address, "finish")
    assert f"{orphan.query.name}: committed\n" in done.stdout
    assert await sink.seen() == batches(0)
    assert orphan.query.name not in oncelog(address, "finish").stdout
    # the driver that was considered dead was only slow, and continues now
    await run(sink.address, sink.topic, Abort(orphan, messages))
    assert await sink.seen() == batches(0)


async def test_a_decided_batch_is_finished_while_its_query_is_down(sink: Sink, address: str) -> None:
    first = sink.new_run(0)
    sink.dies(Commit(first, await sink.tasks(first)), "one ended")
    assert f"{sink.query.name}: committed\n" in oncelog(address, "finish").stdout
    assert await sink.seen() == batches(0)
    assert sink.query.name not in oncelog(address, "finish").stdout
    again = sink.new_run(0)
    await sink.replay(again)
    await sink.replay(replace(again, number=1))
    assert await sink.seen() == batches(0, 1)


async def test_another_state_topic_is_refused(sink: Sink, address: str) -> None:
    name = sink.query.name
    await sink.replay(sink.new_run(0))
    done = oncelog(address, "show", name, "--state-topic", f"{sink.topic}-states", code=1)
    assert "keeps its state in the topic oncelog-spark-state" in done.stderr


async def test_a_delivery_that_was_changed_between_decision_and_replay_is_refused(sink: Sink) -> None:
    await sink.replay(sink.new_run(0))
    with pytest.raises(StateLost, match="delivery=exactly-once"):
        await run(sink.address, sink.topic, Task(sink.new_run(0), 0, is_by_itself=True))
    assert await sink.seen() == batches(0)
