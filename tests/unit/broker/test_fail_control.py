"""Commands that set faults, and the catalogue of possible faults, which names exactly the existing steps."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from tests.support.loop_turns import turns

from oncelog.fail_points.controlled import MAX_FAULTS, ControlledFaults, TooManyFaults
from oncelog.fail_points.faults import Faults
from oncelog.fail_points.point import FAIL_POINTS
from oncelog.fail_points.specification import Action, InvalidFailPoints, Kind, parse_action
from oncelog_broker.fail_control.catalogue import CATALOGUE, STEPS
from oncelog_broker.fail_control.commands import BadCommand, command_of, described
from oncelog_broker.fail_control.http_control import Address, HttpControl, parse_address
from oncelog_broker.fail_control.startup import StartupOptions
from oncelog_broker.server.dispatch.faulty import FaultyHandler, filters_of, named_by
from oncelog_broker.server.dispatch.refusals import REFUSABLE, refusal
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey, request_type, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode

DROP = Action(Kind.DROP)
IN_THE_CLIENT = {"drain", "send"}
AS_ANSWERS = {"acknowledge": "Produce.answer", "reply-sent": "EndTxn.answer"}
"""Fail points that have another name in the catalogue."""

ARMED = """
import json, sys
from importlib import import_module
from oncelog.fail_points.point import arm
faults = arm()
for module in sys.argv[1:]:
    import_module(module)
print(json.dumps({point: step.dropped is not None for point, step in faults.steps.items()}))
"""
MODULES = (
    "oncelog_broker.coordinator.transaction.coordinator",
    "oncelog_broker.coordinator.transaction.markers",
    "oncelog_broker.coordinator.transaction.marker_sender",
    "oncelog_broker.replication.partition",
    "oncelog_broker.server.dispatch.dispatcher",
    "oncelog_broker.server.records.produce",
    "oncelog_broker.server.transactions.txn_offset_commit",
)


def test_the_catalogue_has_every_step_of_the_broker_and_what_can_be_left_out() -> None:
    assert {step.name for step in STEPS} == set(FAIL_POINTS) - IN_THE_CLIENT - AS_ANSWERS.keys()
    assert set(AS_ANSWERS.values()) <= CATALOGUE.keys()
    environment = {name: value for name, value in os.environ.items() if name != "ONCELOG_FAIL_POINTS"}
    done = subprocess.run([sys.executable, "-c", ARMED, *MODULES], env=environment, stdout=subprocess.PIPE, check=True)
    can_drop = json.loads(done.stdout)
    assert {step.name: "drop" in step.actions for step in STEPS} == {
        name: can_drop[name] for name in (step.name for step in STEPS)
    }


def test_a_process_cannot_be_armed_when_its_steps_are_imported() -> None:
    code = (
        "import oncelog_broker.replication.partition\n"
        "from oncelog.fail_points.point import arm\n"
        "try: arm()\n"
        "except RuntimeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert "marker-written" in done.stdout


@pytest.mark.parametrize("key", sorted(REFUSABLE), ids=lambda key: ApiKey(key).name)
def test_a_refusal_can_be_told_in_every_version(key: ApiKey) -> None:
    versions = SERVED[key].versions
    for version in range(versions.low, versions.high + 1):
        request = _request(key, version)
        answer = refusal(key, version, request, ErrorCode.NOT_COORDINATOR)
        parts: list[Any] = []
        response = codec(response_type(key), version)
        response.encode_parts(answer, parts)
        told = response.decode(b"".join(parts), 0)
        assert ErrorCode.NOT_COORDINATOR in set(_codes(told)), version


def _request(key: ApiKey, version: int) -> Any:
    """Return a request with one topic and one partition, group or key, if its API has any."""
    made = _made(request_type(key))
    if key is ApiKey.PRODUCE:
        made.acks = -1
    return made


def _made(cls: Any) -> Any:
    fields = {}
    names = {**vars(sys.modules[cls.__module__]), **_inner(cls)}
    for name, hint in get_type_hints(cls, localns=names).items():
        arguments = [each for each in get_args(hint) if each is not type(None)]
        lists = [each for each in (hint, *get_args(hint)) if get_origin(each) is list]
        if lists:
            (element,) = get_args(lists[0])
            fields[name] = [_value(element)]
        else:
            fields[name] = _value(arguments[0] if arguments else hint)
    return cls(**fields)


def _inner(cls: Any) -> dict[str, Any]:
    found = {}
    for each in vars(cls).values():
        if isinstance(each, type):
            found[each.__name__] = each
            found.update(_inner(each))
    return found


def _value(kind: Any) -> Any:
    if kind in (str, bytes, int, float, bool):
        return {str: "a", bytes: bytes(16), int: 0, float: 0.0, bool: False}[kind]
    return _made(kind) if hasattr(kind, "__annotations__") else b""


def _codes(answer: Any) -> Iterator[int]:
    for name, value in ((name, getattr(answer, name, None)) for name in type(answer).__annotations__):
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(type(each), "__annotations__"):
                    yield from _codes(each)


@pytest.mark.parametrize("key", [ApiKey(key) for key in sorted(SERVED)], ids=lambda key: key.name)
def test_a_request_of_every_version_is_known_by_all_that_a_fault_may_be_limited_to(key: ApiKey) -> None:
    topic = SimpleNamespace(name="a")
    image: Any = SimpleNamespace(topic_by_id=lambda _: topic)
    versions = SERVED[key].versions
    for version in range(versions.low, versions.high + 1):
        parts: list[Any] = []
        request = codec(request_type(key), version)
        request.encode_parts(_request(key, version), parts)
        named = named_by(request.decode(b"".join(parts), 0), image)
        assert {name for name in filters_of(key) if "a" not in named[name]} == set(), version


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (None, "an object"),
        ([], "an object"),
        ({"point": "EndTxn.anwser", "drop": True}, "perhaps EndTxn.answer"),
        ({"point": ["x"], "drop": True}, "unknown fail point"),
        ({"point": "x" * 10_000, "drop": True}, "unknown fail point"),
        ({"point": "EndTxn.answer"}, "one of crash, delay, drop"),
        ({"point": "EndTxn.answer", "drop": False}, "one of"),
        ({"point": "EndTxn.answer", "drop": 1}, "drop must be true"),
        ({"point": "EndTxn.answer", "drop": True, "crash": True}, "one of"),
        ({"point": "EndTxn.answer", "refuse": "NOT_COORDINATOR"}, "cannot refuse"),
        ({"point": "EndTxn.request", "refuse": "NOT_COORDINATER"}, "name of a Kafka error"),
        ({"point": "EndTxn.request", "refuse": "NONE"}, "name of a Kafka error"),
        ({"point": "Fetch.request", "refuse": "NOT_COORDINATOR"}, "cannot refuse"),
        ({"point": "marker-written", "drop": True}, "cannot drop"),
        ({"point": "EndTxn.answer", "delay": 0.5}, "milliseconds"),
        ({"point": "EndTxn.answer", "delay": 10**9}, "milliseconds"),
        ({"point": "EndTxn.answer", "delay": True}, "milliseconds"),
        ({"point": "EndTxn.answer", "drop": True, "times": 0}, "times"),
        ({"point": "EndTxn.answer", "drop": True, "times": True}, "times"),
        ({"point": "EndTxn.answer", "drop": True, "after": True}, "after"),
        ({"point": "marker-sent", "drop": True, "after": True}, "after"),
        ({"point": "EndTxn.answer", "drop": True, "topic": "t"}, "has no field topic"),
        ({"point": "EndTxn.answer", "drop": True, "transactional_id": 1}, "must be a name"),
        ({"point": "EndTxn.answer", "drop": True, "count": 1}, "unknown: count"),
    ],
)
def test_an_order_that_means_nothing_is_refused(fields: Any, reason: str) -> None:
    with pytest.raises(BadCommand, match=reason):
        command_of(fields)


def test_an_order_says_what_when_how_often_and_for_whom() -> None:
    order = command_of({"point": "marker-sent", "crash": True, "after": True, "topic": "orders", "times": None})
    assert order == ("marker-sent", Action(Kind.CRASH), True, None, {"topic": "orders"})
    order = command_of({"point": "EndTxn.request", "refuse": "NOT_COORDINATOR", "drop": None})
    assert order == ("EndTxn.request", Action(Kind.REFUSE, error="NOT_COORDINATOR"), False, 1, {})


def test_a_fault_strikes_as_often_as_was_said_and_for_whom_it_was_said() -> None:
    faults = ControlledFaults()
    twice = faults.add("p", DROP, times=2, filters={"topic": "orders"})

    def strikes(topic: str, *, is_after: bool = False) -> int:
        return len(list(faults.taken("p", is_after=is_after, about=lambda: {"topic": [topic]})))

    assert [strikes("others"), strikes("orders", is_after=True), strikes("orders")] == [0, 0, 1]
    assert [strikes("orders"), strikes("orders")] == [1, 0]
    assert (twice.struck, twice.left) == (2, 0)
    always = faults.add("p", DROP, times=None)
    assert [strikes("others"), strikes("orders"), described(always)["struck"]] == [1, 1, 2]
    assert faults.remove(always.number)
    assert not faults.remove(always.number)
    assert strikes("others") == 0


def test_no_more_faults_are_kept_than_each_hit_can_look_at() -> None:
    faults = ControlledFaults()
    for _ in range(MAX_FAULTS):
        faults.add("p", DROP)
    with pytest.raises(TooManyFaults):
        faults.add("p", DROP)
    faults.clear()
    faults.add("p", DROP)


def test_revoked_faults_of_one_hit_are_not_done() -> None:
    faults = ControlledFaults()
    for delay_ms in (1, 2, 3):
        faults.add("p", Action(Kind.DELAY, delay_ms=delay_ms))
    taken = faults.taken("p", is_after=False, about=dict)
    assert next(taken).action.delay_ms == 1
    faults.clear()  # ends the delay in progress, and revokes the other two
    assert list(taken) == []


def test_the_variable_refuses_nothing() -> None:
    with pytest.raises(InvalidFailPoints, match="unknown action"):
        parse_action("refuse")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0", ("127.0.0.1", 0)),
        ("9999", ("127.0.0.1", 9999)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_the_control_listens_on_loopback_unless_told(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == Address(*address)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "1:65536", "-1", "a:b:-1"])
def test_a_malformed_control_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PORT"):
        parse_address(text)


async def test_a_broker_that_stops_does_not_wait_for_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping the broker must not wait for the HTTP server of the fault control, because that wait would block the
    event loop for half a second.
    """
    is_closed, has_ended = threading.Event(), threading.Event()
    shutdown = ThreadingHTTPServer.shutdown

    def end(server: ThreadingHTTPServer) -> None:
        was_closed = is_closed.wait(10)
        shutdown(server)
        if was_closed:
            has_ended.set()

    monkeypatch.setattr(ThreadingHTTPServer, "shutdown", end)
    control = HttpControl(Faults([]), Address("127.0.0.1", 0))
    control.start(asyncio.get_running_loop())
    control.close()
    is_closed.set()
    assert await asyncio.to_thread(has_ended.wait, 20)


def test_fail_points_are_not_armed_unless_asked_for() -> None:
    startup_options = StartupOptions(stops_at_eof=False, fail_control=None)
    assert startup_options.line is None
    startup_options.end()


def test_an_end_of_input_after_the_broker_has_stopped_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent of a worker ends. The worker then ends because it lost its metadata store, before it reads the end of
    its standard input.
    """
    ended: list[Any] = []
    monkeypatch.setattr("oncelog_broker.runtime.parent.at_end_of_input", ended.append)

    async def begin() -> None:
        StartupOptions(stops_at_eof=True, fail_control=None).begin(asyncio.Event())

    asyncio.run(begin())
    ended[0]()


HOUR_MS = 3_600_000
HOUR = Action(Kind.DELAY, delay_ms=HOUR_MS)


def remove_all(faults: ControlledFaults) -> None:
    """Remove all faults, one by one."""
    for fault in faults.all():
        faults.remove(fault.number)


@pytest.mark.parametrize("take_back", [ControlledFaults.clear, remove_all])
@pytest.mark.parametrize("point", ["Heartbeat.request", "Heartbeat.answer"])
async def test_revoking_a_fault_ends_its_delays(take_back: Any, point: str) -> None:
    """The client that waits for the delayed response must continue, because removing a fault undoes its effects."""
    faults = Faults([])
    handler = FaultyHandler(ApiKey.HEARTBEAT, lambda request, context: "answer", faults)
    for _ in range(2):
        faults.controlled.add(point, HOUR)
    context: Any = SimpleNamespace(services=SimpleNamespace(image=None))
    answer = handler(object(), context)
    assert isinstance(answer, asyncio.Future)
    threading.Thread(target=take_back, args=[faults.controlled]).start()
    async with asyncio.timeout(30):
        assert await answer == "answer"


async def test_a_fault_that_is_taken_back_ends_no_delay_of_another_one() -> None:
    faults = Faults([])
    handler = FaultyHandler(ApiKey.HEARTBEAT, lambda request, context: "answer", faults)
    context: Any = SimpleNamespace(services=SimpleNamespace(image=None))
    first = faults.controlled.add("Heartbeat.request", HOUR)
    answers = [handler(object(), context)]
    second = faults.controlled.add("Heartbeat.request", HOUR)
    answers.append(handler(object(), context))
    await asyncio.to_thread(faults.controlled.remove, second.number)
    async with asyncio.timeout(30):
        assert await answers[1] == "answer"
    assert not answers[0].done()
    await asyncio.to_thread(faults.controlled.remove, first.number)
    async with asyncio.timeout(30):
        assert await answers[0] == "answer"


async def test_a_client_that_goes_ends_all_delays_of_its_answer() -> None:
    faults = Faults([])
    handler = FaultyHandler(ApiKey.HEARTBEAT, lambda request, context: "answer", faults)
    for _ in range(2):
        faults.controlled.add("Heartbeat.request", HOUR)
    context: Any = SimpleNamespace(services=SimpleNamespace(image=None))
    answer = handler(object(), context)
    assert isinstance(answer, asyncio.Future)
    answer.cancel()
    await turns()
    assert not faults.controlled._waiting


@pytest.mark.parametrize("take_back", [ControlledFaults.clear, remove_all])
@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_revoking_a_fault_ends_the_delay_of_a_step(take_back: Any, is_coroutine: bool) -> None:
    """If the delayed step is a plain function, the entire broker is blocked in it."""
    faults = Faults([])

    def step() -> str:
        return "done"

    async def step_of_a_coroutine() -> str:
        return step()

    fault = faults.controlled.add("append", HOUR)
    marked: Any = faults.wrap(step_of_a_coroutine if is_coroutine else step, ["append"], lambda: "append", None)

    def once_struck() -> None:
        faults.controlled.until_struck(fault, 1, 30)
        take_back(faults.controlled)

    threading.Thread(target=once_struck).start()
    async with asyncio.timeout(30):
        assert await (marked() if is_coroutine else asyncio.to_thread(marked)) == "done"


async def test_a_fault_that_was_taken_back_already_delays_nothing() -> None:
    faults = ControlledFaults()
    gone = faults.add("append", HOUR)
    faults.remove(gone.number)
    async with asyncio.timeout(30):
        await faults.pause(HOUR_MS, gone)
        await asyncio.to_thread(faults.sleep, HOUR_MS, gone)
