"""Defines the conditions that a measurement must fulfil. Only the excess over the waits without the hostile client
counts, because the disk may be slow, too; these are the waits before its attack and, if measured, those at an idle
broker at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

from honest_prober import MAX_P99_MS, MAX_WORST_MS, most_of

from hostile.run import Measured

MIN_SAMPLES = 5
"""The minimum number of measured requests; with fewer requests the honest client had too little processor time to prove
anything.
"""


def problems(measured: Measured) -> list[str]:
    return [*_defects(measured), *_excesses(measured)]


def is_doubtful(measured: Measured) -> bool:
    """Return whether all problems are measured numbers that are too high. Other load on the machine can only increase
    these numbers, so the result of a repeated measurement may be good.
    """
    return not list(_defects(measured)) and bool(list(_excesses(measured)))


def _defects(measured: Measured) -> Iterator[str]:
    if not measured.is_running:
        yield "the broker died"
    if measured.has_traceback:
        yield "a traceback in the broker's log"
    if measured.trouble:
        yield measured.trouble
    for kind, _, failure in measured.waits.failures[:3]:
        yield f"the honest client's {kind}: {failure}"


def _excesses(measured: Measured) -> Iterator[str]:
    waits = measured.waits.net
    if len(measured.waits.samples) < MIN_SAMPLES:
        yield f"no more than {len(measured.waits.samples)} requests were measured"
    without = most_of(measured.quiet, measured.idle)
    if waits.p99 > MAX_P99_MS + without.p99:
        yield f"p99 {waits.p99:.0f} ms"
    if waits.worst > MAX_WORST_MS + without.worst:
        yield f"worst {waits.worst:.0f} ms ({measured.waits.worst_sample().kind})"
    before, peak, after = measured.memory
    if peak - before > measured.client.peak_mb:
        yield f"{peak - before} MB more at the peak"
    if after - before > measured.client.left_mb:
        yield f"{after - before} MB kept"
