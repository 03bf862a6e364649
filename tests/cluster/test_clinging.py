"""Tests the signs by which the matrix recognises that a client clings to a lost coordinator, and that the matrix does
not cause the clinging itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import elections
import pytest
from clinging import Said, clings, said
from replicated_cluster import Part

from oncelog_protocol.errors import ErrorCode


def told(*, state: str = "UP", waits: int = 0, **sent: int) -> Said:
    """Return statistics with one broker, and with librdkafka's own internal handle."""
    known = {"source": "learned", "state": state, "waitresp_cnt": waits, "outbuf_cnt": 0, "connects": 1, "req": sent}
    internal = {"source": "internal", "state": "UP", "waitresp_cnt": 9, "outbuf_cnt": 9, "req": {"Metadata": 9}}
    return said(json.dumps({"brokers": {"127.0.0.1:1/1": known, ":0/internal": internal}}))


BEFORE = told(Metadata=4, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=1)


def test_a_client_that_never_looks_up_its_coordinator_clings() -> None:
    assert clings(BEFORE, told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=1))


@pytest.mark.parametrize(
    "after",
    [
        told(Metadata=6, FindCoordinator=3, AddOffsetsToTxn=2, TxnOffsetCommit=1),
        told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=2),
        told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=3, TxnOffsetCommit=1),
        told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=1, waits=1),
        told(Metadata=4, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=1),
        told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=2, TxnOffsetCommit=1, state="TRY_CONNECT"),
    ],
    ids=["asks", "commits", "adds", "waits-for-a-broker", "stands-still", "is-not-connected"],
)
def test_no_other_state_is_taken_for_clinging(after: Said) -> None:
    assert not clings(BEFORE, after)


@pytest.mark.parametrize("source", ["learned", "logical"])
def test_a_client_that_cannot_reach_a_named_broker_does_not_cling(source: str) -> None:
    """In this test the statistics name a broker address that the test itself has given, so a broker missing there would
    be the fault of the test.
    """

    def beside(state: str, connects: int, **sent: int) -> Said:
        here = {"source": "learned", "state": "UP", "waitresp_cnt": 0, "outbuf_cnt": 0, "connects": 1, "req": sent}
        named = {**here, "source": source, "state": state, "connects": connects, "req": {}}
        return said(json.dumps({"brokers": {"127.0.0.1:1/1": here, "127.0.0.1:2/2": named}}))

    before = beside("TRY_CONNECT", 7, Metadata=4)
    # no request needs a connection to the second broker, so the client does not try to connect
    assert clings(before, beside("TRY_CONNECT", 7, Metadata=6))
    assert not clings(before, beside("TRY_CONNECT", 9, Metadata=6))
    assert not clings(before, beside("CONNECT", 7, Metadata=6))
    assert not clings(before, beside("APIVERSION_QUERY", 7, Metadata=6))
    assert not clings(beside("UP", 7, Metadata=4), beside("DOWN", 8, Metadata=6))


def test_a_client_may_wait_for_an_earlier_answer() -> None:
    assert not clings(BEFORE._replace(awaited=1), told(Metadata=6, FindCoordinator=2, AddOffsetsToTxn=2))


def test_an_election_is_over_when_every_broker_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that moment, a broker that is asked for the coordinator of a group would name the previous coordinator."""
    known = {1: 2, 2: 2, 3: 1}
    """Broker id -> the leader that this broker knows; the preferred leader is broker 1."""

    def until(condition: Callable[[], Any], what: str) -> Any:
        while not (found := condition()):
            late = next(node_id for node_id, leader in known.items() if leader != 1)
            known[late] = 1
        return found

    cluster: Any = SimpleNamespace(
        up=[1, 2, 3],
        until=until,
        until_whole=lambda topic: None,
        parts=lambda topic, node_id: {0: Part(known[node_id], 5, (1, 2, 3), (1, 2, 3))},
    )
    monkeypatch.setattr(elections, "elect", lambda cluster, topic: {0: ErrorCode.ELECTION_NOT_NEEDED})
    elections.until_preferred_lead(cluster, "__consumer_offsets")
    assert known == {1: 1, 2: 1, 3: 1}
