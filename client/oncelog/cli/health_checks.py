"""The checks of `oncelog doctor`: they turn evidence about a cluster into findings, each with a remedy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from oncelog.admin.log_dirs import LogDirectory
from oncelog.cli.broker_http import BrokerPages
from oncelog.cli.cluster_state import ClusterState
from oncelog.cli.output import count

MAX_CLOCK_DIFFERENCE_MS: Final = 2000.0
"""Largest difference between wall clocks, in milliseconds, that is not reported. A larger difference matters because
records get their timestamps from wall clocks, and retention and searches by time compare these timestamps.
"""
LEAST_FREE_SHARE: Final = 0.1
"""A disk with less than this fraction free counts as almost full."""
MOST_USED_DESCRIPTORS: Final = 0.85
"""A broker that uses more than this fraction of its file descriptors will soon run out of descriptors."""
FEW_DESCRIPTORS: Final = 10_000
"""A broker's limit of file descriptors should not be lower than this, because each partition and each client uses file
descriptors.
"""
NAMED: Final = 3
"""Maximum number of partitions that a finding names."""


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """The cluster works now, but will fail soon or after the next fault."""
    PROBLEM = "problem"
    """Clients fail, or records are at risk."""
    UNKNOWN = "not checked"


class Finding(NamedTuple):
    """One line of the report of `doctor`."""

    check: str
    state: State
    what: str
    remedy: str = ""
    """What the operator should do; empty if the state is OK."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about the cluster that the checks need."""

    state: ClusterState
    unreachable: Mapping[int, str]
    """Broker -> why its advertised listener cannot be reached from here."""
    api_versions: Mapping[int, frozenset[tuple[int, int, int]]]
    """Broker -> (API, lowest version, highest version) that it serves."""
    pages: Mapping[int, BrokerPages]
    """Broker -> the content of its HTTP pages."""
    unread: Mapping[int, str]
    """Broker -> the reason why its HTTP listener was not read."""
    hanging: Mapping[str, tuple[str, ...]] | None
    """Partition -> the reasons why its open transactions hang; None if the query failed."""
    hanging_error: str
    """The reason why the query for hanging transactions failed."""
    throttled: frozenset[str]
    """Topics with a replication throttle."""

    @classmethod
    def of_listeners(cls, state: ClusterState, unreachable: Mapping[int, str]) -> Evidence:
        """Return evidence for a cluster that could not be read: it only says which brokers cannot be reached."""
        return cls(state, unreachable, {}, {}, {}, None, "", frozenset())


def findings(evidence: Evidence, checks: Iterable[str] | None = None) -> list[Finding]:
    """Run these checks, by default all, in the order in which an operator should read the findings; each check returns
    at least one finding.
    """
    found: list[Finding] = []
    for check in CHECKS if checks is None else checks:
        here = [Finding(check, *rest) for rest in CHECKS[check](evidence)]
        found += here or [Finding(check, State.OK, FINE[check])]
    return found


Found = Iterator[tuple[State, str, str]]


def _listeners(evidence: Evidence) -> Found:
    for node, why in sorted(evidence.unreachable.items()):
        broker = evidence.state.brokers[node]
        yield (
            State.PROBLEM,
            f"broker {node} advertises {broker.host}:{broker.port}, which cannot be reached from here: {why}",
            "check that the broker runs, the network in between, and advertised.listeners: each network that clients "
            "come from needs a listener with a name that they resolve",
        )


def _controller(evidence: Evidence) -> Found:
    if evidence.state.controller_id not in evidence.state.brokers:
        yield (
            State.PROBLEM,
            "the cluster has no controller: partitions get no new leaders",
            "check that most ZooKeeper servers answer, and that brokers reach them",
        )


def _away(evidence: Evidence) -> Found:
    for node in sorted(evidence.state.holders - evidence.state.brokers.keys()):
        yield (
            State.PROBLEM,
            f"broker {node} should hold replicas, and is away",
            f"start it; if it does not return: oncelog brokers decommission {node}",
        )


def _replication(evidence: Evidence) -> Found:
    partitions = evidence.state.partitions
    leaderless = [str(each) for each, it in partitions.items() if it.leader not in evidence.state.brokers]
    if leaderless:
        yield (
            State.PROBLEM,
            f"{count(len(leaderless), 'partition')} without a leader: {_named(leaderless)}",
            "start the brokers of their replicas (oncelog topics describe); only if those are lost for good: "
            "oncelog leaders elect --unclean",
        )
    behind = [str(each) for each, it in partitions.items() if not set(it.replicas) <= set(it.isr)]
    if behind:
        yield (
            State.WARNING,
            f"{count(len(behind), 'partition')} with replicas out of sync: {_named(behind)}",
            "start brokers that are away; else wait, oncelog ping --in-sync says when; oncelog log-dirs --partitions "
            "shows how far they lag",
        )
    single = [str(each) for each, it in partitions.items() if len(it.replicas) == 1]
    if single and len(evidence.state.brokers) > 1 and not _is_in_one_rack(evidence):
        yield (
            State.WARNING,
            f"{count(len(single), 'partition')} with one replica only: {_named(single)}",
            "oncelog reassign generate --replication-factor 3 TOPIC..., then oncelog reassign execute",
        )


def _is_in_one_rack(evidence: Evidence) -> bool:
    """Return whether all brokers have the same rack, as the workers of one machine: further replicas would be lost
    together with the first one.
    """
    racks = set(evidence.state.racks.values())
    return len(racks) == 1 and None not in racks


def _transactions(evidence: Evidence) -> Found:
    if evidence.hanging is None:
        yield State.UNKNOWN, evidence.hanging_error, "ask with the rights to describe transactions and producers"
        return
    for partition, reasons in sorted(evidence.hanging.items()):
        yield (
            State.PROBLEM,
            f"{partition} has a hanging transaction ({', '.join(reasons)}): readers with read_committed stand still",
            "oncelog txns find-hanging shows the command that ends it",
        )


def _disks(evidence: Evidence) -> Found:
    for node in sorted(evidence.state.brokers.keys() - evidence.state.directories.keys()):
        yield State.UNKNOWN, f"broker {node} does not describe its data directories", "see the other findings about it"
    for node, directories in sorted(evidence.state.directories.items()):
        for path, directory in directories.items():
            if not isinstance(directory, LogDirectory):
                yield (
                    State.PROBLEM,
                    f"{path} of broker {node} has failed: {directory}",
                    "replace the disk, or take the directory out of log.dirs, and restart the broker",
                )
            elif directory.total_bytes and directory.usable_bytes is not None:
                share = directory.usable_bytes / directory.total_bytes
                if share < LEAST_FREE_SHARE:
                    yield (
                        State.PROBLEM,
                        f"{path} of broker {node} has {share:.0%} of its space left",
                        "shorten retention.ms of large topics (oncelog log-dirs --partitions), or enlarge the disk",
                    )


def _clocks(evidence: Evidence) -> Found:
    offsets = {
        node: pages.clock_offset_ms for node, pages in evidence.pages.items() if pages.clock_offset_ms is not None
    }
    for node, offset in sorted(offsets.items()):
        sure = abs(offset) - evidence.pages[node].round_trip_ms / 2
        if sure > MAX_CLOCK_DIFFERENCE_MS:
            how = "ahead of" if offset > 0 else "behind"
            yield (
                State.WARNING,
                f"the clock of broker {node} is {abs(offset) / 1000:.1f} s {how} the clock here",
                "synchronize the clocks of all machines, brokers and clients (chrony or systemd-timesyncd): retention "
                "and searches by time go by them",
            )
    yield from _unread(evidence)


def _descriptors(evidence: Evidence) -> Found:
    for node, pages in sorted(evidence.pages.items()):
        used, limit = pages.value("process_open_fds"), pages.value("process_max_fds")
        if limit is None:
            continue
        if used is not None and used > MOST_USED_DESCRIPTORS * limit:
            yield (
                State.PROBLEM,
                f"broker {node} uses {used:.0f} of {limit:.0f} file descriptors",
                "raise the limit (LimitNOFILE in the unit, ulimit -n), and restart the broker",
            )
        elif 0 <= limit < FEW_DESCRIPTORS:
            yield (
                State.WARNING,
                f"broker {node} may open {limit:.0f} files only",
                f"raise the limit to {FEW_DESCRIPTORS} or more (LimitNOFILE in the unit, ulimit -n), and restart the "
                "broker",
            )
    yield from _unread(evidence)


def _leases(evidence: Evidence) -> Found:
    for node, pages in sorted(evidence.pages.items()):
        if pages.value("oncelog_session_in_doubt"):
            yield (
                State.PROBLEM,
                f"the session of broker {node} with ZooKeeper may have expired: it leads and coordinates nothing",
                "check that the broker reaches most ZooKeeper servers; its log says since when it does not",
            )
    yield from _unread(evidence)


def _versions(evidence: Evidence) -> Found:
    releases = {node: pages.release for node, pages in evidence.pages.items() if pages.release is not None}
    remedy = "upgrade the others, one after the other: oncelog ping --in-sync says when the next one may be stopped"
    if len(set(releases.values())) > 1:
        shown = ", ".join(f"broker {node} has {release}" for node, release in sorted(releases.items()))
        yield State.WARNING, f"brokers of different releases: {shown}", remedy
    elif len(set(evidence.api_versions.values())) > 1:
        usual = Counter(evidence.api_versions.values()).most_common(1)[0][0]
        others = [str(node) for node, served in sorted(evidence.api_versions.items()) if served != usual]
        yield State.WARNING, f"broker {', '.join(others)} serves other versions of the protocol than the rest", remedy


def _throttles(evidence: Evidence) -> Found:
    if evidence.throttled and not evidence.state.moving:
        yield (
            State.WARNING,
            f"a replication throttle is left on {_named(sorted(evidence.throttled))}, and no partition moves",
            "take it back: oncelog brokers rebalance --execute does, or oncelog reassign verify with the plan",
        )


def _unread(evidence: Evidence) -> Found:
    for node, why in sorted(evidence.unread.items()):
        yield State.UNKNOWN, f"broker {node}: {why}", "metrics must be readable from here"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


CHECKS: Final[Mapping[str, Callable[[Evidence], Found]]] = {
    "listeners": _listeners,
    "controller": _controller,
    "brokers": _away,
    "replication": _replication,
    "transactions": _transactions,
    "disks": _disks,
    "leases": _leases,
    "clocks": _clocks,
    "descriptors": _descriptors,
    "versions": _versions,
    "throttles": _throttles,
}
FINE: Final[Mapping[str, str]] = {
    "listeners": "every broker can be reached from here at the address that it advertises",
    "controller": "there is one",
    "brokers": "every broker that should hold replicas is there",
    "replication": "every partition has a leader, and all its replicas are in sync",
    "transactions": "none hangs",
    "disks": "every data directory works and has room",
    "leases": "every broker is sure of its session",
    "clocks": "brokers and this machine agree",
    "descriptors": "every broker has enough",
    "versions": "all brokers serve the same",
    "throttles": "none is left behind",
}
"""Maps each check to the text that is shown if the check finds no problem."""
