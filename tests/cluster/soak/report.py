"""Writes the tables of docs/soak.md, and the files that a failed run leaves."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from oncelog_testing.history.recorder import History
from soak.faults import Done
from soak.plan import Fault
from soak.progress import Stall
from soak.run import Result

KINDS = {
    "writer": "writing",
    "copier": "transactions",
    "reader ": "reading",
    "readers": "a group",
    "streams": "Streams",
}
"""Maps the beginning of a client's name to the kind of the client."""
SEVERAL = "two of these at once"


def kind_of(client: str) -> str:
    return next(kind for beginning, kind in KINDS.items() if client.startswith(beginning))


def cause(stall: Stall, done: Sequence[Done]) -> Done | None:
    """Return the fault that caused the stall: the first fault that struck during the stall, or else the last fault
    before it. Returns None if no fault struck before the end of the stall.
    """
    within = [each for each in done if stall.began <= each.began <= stall.ended]
    before = [each for each in done if each.began < stall.began]
    return (
        min(within, key=lambda each: each.began) if within else max(before, key=lambda each: each.began, default=None)
    )


def row_of(done: Done, all_done: Sequence[Done]) -> str:
    """Return the row of the table to which this fault belongs."""
    for other in all_done:
        if other is not done and max(done.began, other.began) < min(done.healed, other.healed):
            return SEVERAL
    return done.strike.fault.value


def longest_stalls(result: Result) -> dict[str, dict[str, float]]:
    """Return the longest stall in seconds, for each row of the table and each kind of client."""
    longest: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for stall in result.progress.stalls:
        found = cause(stall, result.done)
        if found is not None:
            kinds = longest[row_of(found, result.done)]
            kind = kind_of(stall.client)
            kinds[kind] = max(kinds.get(kind, 0.0), stall.seconds)
    return longest


def fault_table(results: Sequence[Result]) -> Iterator[str]:
    kinds = list(KINDS.values())
    yield "| fault | strikes | " + " | ".join(kinds) + " |"
    yield "|---|---:|" + "---:|" * len(kinds)
    counts = Counter(row_of(done, result.done) for result in results for done in result.done)
    all_longest = [longest_stalls(result) for result in results]
    for row in (*(fault.value for fault in Fault), SEVERAL):
        if counts[row]:
            worst = [max(longest[row].get(kind, 0.0) for longest in all_longest) for kind in kinds]
            cells = " | ".join(f"{each:.1f} s" if each else "under 0.5 s" for each in worst)
            yield f"| {row} | {counts[row]} | {cells} |"


def run_table(results: Sequence[Result]) -> Iterator[str]:
    yield "| seed | faults struck for | strikes | lines | transactions | aborted | reads | violations |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    for result in results:
        count, mishaps = result.progress.count, result.progress.mishaps
        lines = sum(send.transaction is None for send in result.history.sends)
        committed = sum(count[client] for client in count if kind_of(client) == "transactions")
        aborted = sum(each["aborted"] for each in mishaps.values())
        reads = sum(len(reading.records) for reading in result.history.readings)
        yield (
            f"| {result.settings.seed} | {result.settings.seconds / 60:.0f} min | {len(result.done)} | {lines} "
            f"| {committed} | {aborted} | {reads} | {len(result.problems)} |"
        )


def use_table(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a table with the measurements of each process: the first, the last, and the maximum over all
    its restarts.
    """
    yield "| seed | process | descriptors first / most / last | resident memory first / most / last, MB |"
    yield "|---:|---|---:|---:|"
    for result in results:
        for node_id in (1, 2, 3, 0):
            uses = [use for use in result.use.uses if use.broker == node_id]
            if uses:
                name = f"broker {node_id}" if node_id else "all clients"
                descriptors = _first_most_last([use.descriptors for use in uses])
                memory = _first_most_last([use.megabytes for use in uses])
                yield f"| {result.settings.seed} | {name} | {descriptors} | {memory} |"


def _first_most_last(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} / {max(numbers)} / {numbers[-1]}"


def mishap_lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield lines that say how many transactions were aborted and how many clients were replaced."""
    total: Counter[str] = Counter()
    for result in results:
        for client, mishaps in result.progress.mishaps.items():
            for what, count in mishaps.items():
                library = next((each for each in ("oncelog", "librdkafka") if each in client), "the group")
                total[f"{library}: {what}"] += count
    yield from (f"- {what}: {count}" for what, count in sorted(total.items()))


def page(results: Sequence[Result]) -> Iterator[str]:
    yield from run_table(results)
    yield ""
    yield from fault_table(results)
    yield ""
    yield from use_table(results)
    yield ""
    yield from mishap_lines(results)


# --- evidence


def keep(directory: Path, result: Result) -> None:
    """Write the faults with their times, the stalls, the history and the problems into the directory with the data and
    the logs of brokers and servers.
    """
    (directory / "problems.txt").write_text("\n".join(result.problems) + "\n")
    (directory / "timeline.txt").write_text("\n".join(timeline(result)) + "\n")
    (directory / "tables.md").write_text("\n".join(page([result])) + "\n")
    with gzip.open(directory / "history.jsonl.gz", "wt") as file:
        for line in history_lines(result.history):
            file.write(line + "\n")


def timeline(result: Result) -> Iterator[str]:
    events = [(done.began, f"{done.strike}") for done in result.done]
    events += [(done.healed, f"healed: {done.strike}") for done in result.done]
    events += result.progress.events
    events += [(stall.began, f"{stall.client} stalls for {stall.seconds:.1f} s") for stall in result.progress.stalls]
    yield from (f"{at:8.1f} {what}" for at, what in sorted(events))


def history_lines(history: History) -> Iterator[str]:
    """Yield the history as lines of JSON, one event in each line."""
    lists: Iterable[Sequence[object]] = (history.transactions, history.sends, history.commits, history.offset_reads)
    for events in (*lists, history.readings):
        for event in events:
            yield json.dumps({"kind": type(event).__name__, **asdict(event)}, default=str)  # type: ignore[call-overload]
    for place, records in history.final.items():
        yield json.dumps({"kind": "final", "place": place, "records": records}, default=str)
