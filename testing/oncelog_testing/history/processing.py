"""Checks consume-process-produce: each input below a group's committed offset must have exactly one visible output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from oncelog_testing.history.events import Input, Send
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test


def processing_violations(history: History) -> Iterator[Violation]:
    """Yield the inputs with a missing or duplicated output, for partitions whose final content is known."""
    outputs: defaultdict[Input, list[Send]] = defaultdict(list)
    visible = {place: {value for _, value in records} for place, records in history.final.items()}
    for send in history.sends:
        if send.made_of is not None and send.value in visible.get(send.place, ()):
            outputs[send.made_of].append(send)
    for source, sends in outputs.items():
        if len(sends) > 1:
            yield Violation(Kind.PROCESSED_TWICE, f"{source}: {[send.value for send in sends]}")
    for (group, place), end in history.processed.items():
        for offset, value in history.final.get(place, ()):
            if offset < end and Input(group, place, offset) not in outputs:
                yield Violation(Kind.NOT_PROCESSED, f"{value!r} in {place} at {offset}, by {group}, which is at {end}")
