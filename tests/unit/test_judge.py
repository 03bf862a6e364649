"""The judge of histories over HTTP: which events it accepts, which it refuses, and its verdict."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from oncelog.errors import ConnectionFailed
from oncelog_testing.history.checker import verdict
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind
from oncelog_testing.judge import http_judge
from oncelog_testing.judge.document import record, shown
from oncelog_testing.judge.http_judge import Judge

SEND = {"producer": "p", "topic": "t", "value": "a", "outcome": "acknowledged"}


def judged(document: Any, *found: bytes) -> dict[str, Any]:
    history = History()
    case = record(document, history)
    history.finally_holds(Place("t"), enumerate(found))
    return shown(verdict(history, apart_from=case.apart_from))


def kinds(document: Any, *found: bytes) -> list[str]:
    return [each["kind"] for each in judged(document, *found)["violations"]]


def test_a_record_that_is_there_once_is_right() -> None:
    answer = judged({"sends": [SEND]}, b"a")
    assert (answer["exactly_once"], answer["violations"]) == (True, [])
    assert answer["verdict"].startswith("exactly once: 1 record sent")


@pytest.mark.parametrize(
    ("document", "found", "expected"),
    [
        ({"sends": [SEND]}, (), ["LOST"]),
        ({"sends": [SEND]}, (b"a", b"a"), ["TWICE"]),
        ({"sends": [SEND], "apart_from": ["TWICE"]}, (b"a", b"a"), []),
        ({"sends": [{**SEND, "outcome": "unknown"}]}, (), []),
        ({"sends": [{**SEND, "outcome": "failed"}]}, (b"a",), ["INVENTED"]),
        ({"sends": [{**SEND, "value_base64": "AP8="}]}, (b"\x00\xff",), []),
        ({"sends": [{**SEND, "partition": 0, "offset": 1}]}, (b"a",), ["MOVED"]),
        (
            {
                "transactions": [{"id": "1", "producer": "p", "end": "aborted"}],
                "sends": [{**SEND, "transaction": "1"}],
            },
            (b"a",),
            ["ABORTED"],
        ),
    ],
)
def test_violations_are_found_as_in_a_history_of_python(
    document: Any, found: tuple[bytes, ...], expected: list[str]
) -> None:
    assert kinds(document, *found) == expected


def test_what_a_group_makes_is_told_by_a_regular_expression() -> None:
    case = record({"processed": {"source": "in", "into": "out", "made_of": "bill for (.*)"}}, History())
    assert case.processed is not None
    assert case.processed.made_of(b"bill for a") == b"a"
    assert case.processed.made_of(b"nothing") is None
    assert (case.processed.source, case.processed.into, case.processed.group_id) == ("in", "out", None)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "a JSON object"),
        ({"send": []}, "unknown field 'send'"),
        ({"sends": {}}, "`sends` is a list"),
        ({"sends": [7]}, "`sends` is a list of objects"),
        ({"sends": [{**SEND, "value": 7}]}, "`value` is a text"),
        ({"sends": [{**SEND, "value_base64": "?"}]}, "value_base64"),
        ({"sends": [{**SEND, "outcome": "maybe"}]}, "one of acknowledged, failed, unknown"),
        ({"sends": [{**SEND, "partition": -2}]}, "a number from 0 on"),
        ({"sends": [{**SEND, "transaction": "9"}]}, "transaction '9'"),
        ({"transactions": [{"id": "1", "producer": "p", "end": "open"}]}, "one of committed"),
        ({"topics": [7]}, "names"),
        ({"apart_from": ["ONCE"]}, "there are LOST"),
        ({"processed": {"source": "a", "into": "b", "made_of": "("}}, "not a regular expression"),
        ({"processed": {"source": "a", "into": "b", "made_of": "x"}}, "no group"),
    ],
)
def test_a_history_that_is_not_as_it_should_be_is_refused(document: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        record(document, History())


@pytest.fixture
def server() -> Iterator[Judge]:
    with Judge(("127.0.0.1", 0), "127.0.0.1:1") as server:
        server.judge = lambda document: {"judged": document}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def posted(server: Judge, body: bytes, path: str = "/verdict", **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, sent)
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_history_is_judged_over_http(server: Judge) -> None:
    assert posted(server, b'{"topics": []}') == (200, {"judged": {"topics": []}})


def test_requests_that_are_wrong_or_too_long_are_refused(server: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_judge, "MAX_BODY_BYTES", 10)
    assert posted(server, b"{}", "/other")[0] == 404
    assert posted(server, b"{}", Content_Type="text/plain")[0] == 415
    assert posted(server, b"x" * 11)[0] == 413
    assert posted(server, b"{")[0] == 400
    assert posted(server, b"{}", Content_Length="x")[0] in (400, 411)


def test_a_broker_that_is_away_is_told(server: Judge) -> None:
    def fails(_: Any) -> dict[str, Any]:
        raise ConnectionFailed("refused")

    server.judge = fails
    status, answer = posted(server, b"{}")
    assert status == 503
    assert "the topics cannot be read" in answer["error"]


def test_kinds_are_named_as_in_python() -> None:
    assert record({"apart_from": ["TORN"]}, History()).apart_from == {Kind.TORN}
