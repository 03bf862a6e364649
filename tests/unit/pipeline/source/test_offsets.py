"""Offsets in checkpoints have the same JSON format as those of Spark's own connector."""

from __future__ import annotations

import json

import pytest

from oncelog import TopicPartition
from oncelog_pipeline.source.offsets import (
    FROM,
    INITIAL,
    BadOffsets,
    batch_start,
    end_with_start,
    offsets_from,
    offsets_from_json,
    offsets_to,
)

A0, A1, B10 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 10)


def test_offsets_are_written_as_sparks_own_connector_does() -> None:
    offsets = {B10: 5, A1: 2, A0: 1}
    assert json.dumps(offsets_to(offsets)) == '{"a": {"0": 1, "1": 2}, "b": {"10": 5}}'
    assert offsets_from_json('{"b":{"10":5},"a":{"1":2,"0":1}}') == offsets
    assert offsets_from({}) == {}


def test_a_batch_that_begins_elsewhere_says_so_itself() -> None:
    """A repeated batch begins at its own stored start offsets, whatever start offsets Spark passes when it requests the
    batch again.
    """
    end = end_with_start({A0: 9}, {A0: 4})
    assert end == {"a": {"0": 9}, FROM: {"a": {"0": 4}}}
    assert offsets_from(end) == {A0: 9}
    assert batch_start({"a": {"0": 7}, INITIAL: True}, end) == {A0: 4}
    assert batch_start(end, {"a": {"0": 12}}) == {A0: 9}


@pytest.mark.parametrize("text", ["", "1", '{"a":1}', '{"a":{"0":-1}}', '{"a":{"0":1.5}}', '{"a":{"-1":1}}'])
def test_malformed_offsets_are_refused(text: str) -> None:
    with pytest.raises(BadOffsets):
        offsets_from_json(text)
