"""Reads the offsets of a Spark checkpoint: which topics its query reads, and up to which offsets. Pure.

A checkpoint has a file `offsets/N` for batch N: a line with a version, a line about the batch, and for each input a
line with the JSON of its offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from oncelog_pipeline.jobs.job import Input
from oncelog_pipeline.jobs.keys import JobError
from oncelog_pipeline.source.offsets import MARKS, STREAM

LINES_BEFORE: Final = 2
NOTHING: Final = "-"
"""Spark writes this text into the file if an input has no offsets yet."""


def check_checkpoint(location: str, offsets: str, inputs: Sequence[Input]) -> None:
    """Raise JobError if the checkpoint belongs to another query. `offsets` is the text of the newest file of
    offsets."""
    lines = [line for line in offsets.strip().splitlines()[LINES_BEFORE:] if line]
    if len(lines) != len(inputs):
        raise JobError(_other(location, f"it has {len(lines)} inputs, this job has {len(inputs)}"))
    for line, each in zip(lines, inputs, strict=True):
        strange = [topic for topic in _topics(line) if not _reads(each, topic)]
        if strange:
            raise JobError(_other(location, f"it has read {', '.join(strange)}, which this job does not"))


def sources_in(offsets: str) -> list[dict[str, Any]]:
    """Return the offsets of each oncelog input that has read something. `offsets` is the text of the checkpoint's file
    offsets/N."""
    found = []
    for line in offsets.strip().splitlines()[LINES_BEFORE:]:
        try:
            read = json.loads(line)
        except ValueError:
            continue  # the input has no offsets yet, or the file was only partly written
        if isinstance(read, dict) and STREAM in read:
            found.append(read)
    return found


def _topics(line: str) -> list[str]:
    if line == NOTHING:
        return []
    try:
        read = json.loads(line)
    except ValueError:
        return []
    return [name for name in read if name not in MARKS] if isinstance(read, dict) else []


def _reads(job_input: Input, topic: str) -> bool:
    options = job_input.options
    if "subscribe" in options:
        return topic in [name.strip() for name in options["subscribe"].split(",")]
    return re.fullmatch(options["subscribePattern"], topic) is not None


def _other(location: str, why: str) -> str:
    return (
        f"{location} is the checkpoint of another query: {why}. Give this job a location of its own, in [checkpoint];"
        " or, to restart, delete the checkpoint: all records from the start offsets on are then read and written again"
    )
