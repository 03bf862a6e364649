"""The story of a failing seed, for a reader who did not write the code: the violations, the faults of the cluster, the
events by broker and client, and the history of the records that the judges name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from oncelog_simulation.faults.catalogue import FAULTS
from oncelog_simulation.plan import Plan
from oncelog_simulation.scenes.catalogue import SCENES
from oncelog_simulation.timeline import Event
from oncelog_simulation.workloads.notes import Notes
from oncelog_testing.history.events import Send

if TYPE_CHECKING:
    from oncelog_simulation.run import Outcome

VALUE: Final = re.compile(r"b'([^']+)'")
"""Matches a record's name in the text of a violation."""
MOST_RECORDS: Final = 12
"""Limit on the number of records whose history is printed."""
WIDTH: Final = 150
"""Limit on the characters of one printed line."""
SAME: Final = 3
"""Number of repetitions above which a repeated line is printed once, with its count."""


def tell(outcome: Outcome, notes: Notes, again: str = "") -> str:
    """Return the entire story, in lines of at most WIDTH characters. `again`: how to run the seed again; by default a
    command.
    """
    return "\n".join(line[:WIDTH] for part in _parts(outcome, notes, again) for line in part)


def _parts(outcome: Outcome, notes: Notes, again: str) -> Iterator[list[str]]:
    plan = outcome.plan
    yield [
        f"Seed {plan.seed}: " + (_many(len(outcome.violations), "violation") if outcome.violations else "all is well")
    ]
    yield [
        "",
        "Violations:",
        *(f"  {each.at:9.3f} s  {each.judge}: {each.what}" for each in outcome.violations),
    ]
    yield ["", "Workloads and faults:", *_plan_lines(plan)]
    lives = _lives(outcome, notes)
    if lives:
        yield ["", "The records that are named:", *lives]
    yield ["", "What happened:", *_timeline(outcome.timeline.events)]
    again = again or f"python -m oncelog_simulation replay {plan.seed}"
    yield ["", f"Again, the same to the byte: {again}"]


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"  {plan.brokers} brokers and {', '.join(plan.workloads) or 'no clients'}, for {plan.seconds:g} s"
    if plan.scene:
        yield f"  again and again: {SCENES[plan.scene].title}"
    for strike in plan.strikes:
        title = FAULTS[strike.fault].title if strike.fault in FAULTS else strike.fault
        whom = f" ({', '.join(strike.machines)})" if strike.machines else ""
        lasting = f" for {strike.seconds:g} s" if strike.seconds else ""
        yield f"  {strike.at:9.3f} s after their start: {title}{whom}{lasting}"


# --- records


def _lives(outcome: Outcome, notes: Notes) -> list[str]:
    """Return, for each record that a violation names, the events in its history."""
    named = dict.fromkeys(value for each in outcome.violations for value in VALUE.findall(each.what))
    sends = {send.value.decode(errors="replace"): send for send in notes.history.sends}
    lines = []
    for value in list(named)[:MOST_RECORDS]:
        send = sends.get(value)
        if send is not None:
            lines.append(f"  {value}: {_life(send, notes)}")
    return lines


def _life(send: Send, notes: Notes) -> str:
    sent, answered = notes.times(send)
    told = f"sent by {send.producer} to {send.place}"
    if sent is not None:
        told += f" at {sent:.3f} s"
    if send.transaction is not None:
        told += f" in {send.transaction}"
    told += f"; {send.outcome.value}"
    if answered is not None:
        told += f" at {answered:.3f} s"
    if send.offset >= 0:
        told += f" with offset {send.offset}"
    places = [
        f"{place} at {offset}"
        for place, records in notes.history.final.items()
        for offset, value in records
        if value == send.value
    ]
    return told + (f"; in the end in {', '.join(places)}" if places else "; missing at the end")


# --- the timeline


def _timeline(events: Iterable[Event]) -> Iterator[str]:
    for _, same in groupby(events, key=lambda event: (event.actor, event.what)):
        told = list(same)
        for event in told[:SAME]:
            yield "  " + _line(event)
        if len(told) > SAME:
            last = told[-1]
            yield f"  {'':>9}    {last.actor:<14} ... {len(told) - SAME} times more, until {last.at:.3f} s"


def _line(event: Event) -> str:
    details = ", ".join(f"{name.rstrip('_')} {value}" for name, value in event.details)
    return f"{event.at:9.3f} s  {event.actor:<14} {event.what}" + (f" ({details})" if details else "")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
