"""Tests the pages of `oncelog console` against a live broker, with requests but no browser; the tests of tailing a
topic and of the command use a real socket.

The broker of these tests allows clients to create transactions that hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
from broker_process import BrokerFactory, BrokerProcess
from console_browser import OURS, PATIENT, Browser, as_text, opened
from foreign_clients import eventually
from hanging import hung
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset
from starlette.types import Receive, Scope, Send
from warm_commands import COMMAND, run_oncelog_text

from oncelog import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from oncelog.admin.shares import ShareGroupMember
from oncelog.errors import KafkaError
from oncelog_console import limits
from oncelog_console.application import application
from oncelog_console.clusters import Cluster
from oncelog_console.lookups.records import TooLarge
from oncelog_console.pages.tail import EventStream
from oncelog_console.serving import Serving, listening_socket
from oncelog_console.site import site_of
from oncelog_protocol.errors import ErrorCode

SCRIPT = "<script>alert('x')</script>"
NOBODY = "127.0.0.1:1"
HASTY = dict.fromkeys(PATIENT, 1_000)
"""Short time limits in milliseconds, for pages that no broker could fill in any case."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("pages.page_request", "link"):
        monkeypatch.setattr(f"oncelog_console.{place}.PAGE_SECONDS", 90.0)


@pytest.fixture
def raw(unguarded: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(unguarded.port) as client:
        yield client


@pytest_asyncio.fixture
async def browser(unguarded: BrokerProcess) -> AsyncIterator[Browser]:
    async with opened(unguarded.address) as made:
        yield made


async def write(address: str, topic: str, *values: bytes | None, key: bytes | None = None, **options: Any) -> None:
    async with Producer(address, **options) as producer:
        for value in values:
            await producer.send(topic, value, key=key)
        await producer.flush()


# --- pages


async def test_brokers_and_topics_are_shown(
    browser: Browser, raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic, 3)
    text = await browser.text("/")
    assert f"1 controller {unguarded.address}" in text
    assert "All replicas are in sync" in text
    assert str(unguarded.data) in text
    assert topic in await browser.text("/topics", q=topic[:12].upper())
    assert "No topic has “nothing-like-it”" in await browser.text("/topics", q="nothing-like-it")
    text = await browser.text("/topic", name=topic)
    assert "All settings have their defaults" in text
    assert "in sync" in text
    assert "min.insync.replicas" in await browser.text("/topic", name=topic, all="1")


async def test_large_numbers_are_readable_in_every_page(browser: Browser, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    await write(browser.address, topic, *[b"x"] * 1234, linger_ms=50)
    group = f"{topic}-group"
    async with Consumer(browser.address, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.commit({TopicPartition(topic, 0): 1})
    await browser.console.history.sample()
    for path, query, seen in (
        ("/topic", {"name": topic}, "1 234"),
        ("/partition", {"topic": topic, "partition": "0"}, "1 234"),
        ("/group", {"id": group}, "1 233"),
        ("/groups", {}, "1 233"),
        ("/records", {"topic": topic, "key": "none", "at": "earliest"}, "among 1 234 that were looked at"),
    ):
        assert seen in await browser.text(path, **query), path  # type: ignore[arg-type]


async def test_records_are_found_by_position_key_and_page(
    browser: Browser, raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    many = limits.PAGE_RECORDS + 10
    await write(unguarded.address, topic, *(b"value-%03d" % n for n in range(many)), key=b"all")
    await write(unguarded.address, topic, b"the one", key=b"rare")
    newest = await browser.text("/records", topic=topic)
    assert "value-011" in newest
    assert "value-010" not in newest
    assert "the one" in newest
    first = await browser.page("/records", topic=topic, at="earliest")
    assert "value-049" in first
    assert "value-050" not in first
    (following,) = re.findall(r'href="([^"]+)">Next', first)
    second = as_text(await browser.page(html.unescape(following)))
    assert "value-049" not in second
    assert "value-050" in second
    assert "This is the end" in second
    found = await browser.text("/records", topic=topic, key="rare")
    assert f"1 record with this key among {many + 1}" in found
    assert "value-0" not in found
    assert "No record has this key" in await browser.text("/records", topic=topic, key="none")
    assert "No records from here on" in await browser.text("/records", topic=topic, at="2040-01-01")
    assert "is none of" in await browser.text("/records", topic=topic, at="soon")
    assert "value-017" in await browser.text("/record", topic=topic, partition=0, offset=17)


async def test_records_are_found_by_value_header_and_time(browser: Browser, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic, 2)
    async with Producer(browser.address) as producer:
        for n in range(20):
            headers = [("trace", b"%d" % n)] if n % 5 == 0 else []
            value = json.dumps({"amount": n, "item": "tea"}).encode()
            await producer.send(
                topic, value, partition=n % 2, headers=headers, timestamp_ms=1_700_000_000_000 + n * 1000
            )
        await producer.send(topic, b"no json", partition=0)
        await producer.flush()
    found = await browser.text("/records", topic=topic, value="$.amount > 17")
    assert "2 records with this search among 21" in found
    assert "1 value could not be read" in found
    assert '{"amount": 18, "item": "tea"}' in found
    assert '{"amount": 17, "item": "tea"}' not in found
    assert "1 record with this" in await browser.text("/records", topic=topic, value="$.amount > 17", partition=0)
    assert "11 records with this search" in await browser.text("/records", topic=topic, value='"amount": 1')
    assert "4 records with this" in await browser.text("/records", topic=topic, header="trace")
    assert "1 record with this" in await browser.text("/records", topic=topic, header="trace=15")
    early = await browser.text("/records", topic=topic, until="2023-11-14T22:13:22")
    assert "3 records with this" in early
    assert "is not an expression such as" in await browser.text("/records", topic=topic, value="$.amount >")
    assert "until is a time" in await browser.text("/records", 400, topic=topic, until="soon")
    nothing = await browser.text("/records", topic=topic, value="$.amount > 1000")
    assert "No record matches" in nothing


async def test_shown_records_are_downloaded_with_their_whole_values(
    browser: Browser, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic)
    await write(browser.address, topic, b"=1+1", b"x" * 2000, b"\xff", key=b"k")
    page = await browser.page("/records", topic=topic, at="earliest")
    links = [html.unescape(each) for each in re.findall(r'href="(/download[^"]+)"', page)]
    lines, sheet = [await browser.client.get(each) for each in links]
    assert lines.headers["content-disposition"] == f'attachment; filename="{topic}.jsonl"'
    assert [len(json.loads(each)["value"]) for each in lines.text.splitlines()] == [4, 2000, 4]
    assert sheet.headers["content-type"] == "text/csv; charset=utf-8"
    assert "'=1+1" in sheet.text
    assert "x" * 2000 in sheet.text
    assert "a download is one of: jsonl, csv" in await browser.text("/download", 400, topic=topic)


async def test_a_download_has_a_largest_size(
    browser: Browser, raw: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.create_topic(topic)
    await write(browser.address, topic, b"x" * 2000)
    monkeypatch.setattr("oncelog_console.lookups.records._Reading.kept", too_large)
    assert "more than 32 MiB" in await browser.text("/download", 400, topic=topic, **{"as": "csv"})


def too_large(*_: object) -> None:
    raise TooLarge("these records have more than 32 MiB: oncelog consume reads them")


async def test_records_say_what_has_become_of_them(browser: Browser, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for value, commits in ((b"kept", True), (b"dropped", False)):
        txn.write(topic, value=value)
        assert txn.end(commits=commits) == ErrorCode.NONE
        eventually(lambda: is_stable(raw, topic), "the marker is there")
    txn.write(topic, value=b"pending")
    everything = await browser.text("/records", topic=topic)
    fates = ["kept committed", "commit marker", "dropped aborted", "abort marker", "pending open"]
    places = [everything.index(fate) for fate in fates]
    assert places == sorted(places)
    committed = await browser.text("/records", topic=topic, show="committed")
    assert "kept committed" in committed
    assert not any(each in committed for each in ("dropped", "pending", "marker", "Next"))
    picture = await browser.page("/partition", topic=topic, partition=0)
    shapes = ("box data committed", "box abort", "box data open", 'text class="stable"')
    assert [shape for shape in shapes if shape not in picture] == []
    assert "last stable offset 4" in picture
    assert "open from 4" in as_text(picture)
    assert txn.end() == ErrorCode.NONE


async def test_foreign_names_are_shown_as_text(
    browser: Browser, raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    odd = f"{SCRIPT}\u202e\x07 {topic}"
    async with Producer(unguarded.address) as producer:
        await producer.send(topic, f"{SCRIPT}\x1b[2J".encode(), key=odd.encode(), headers=[(odd, b"\xff")])
        await producer.send(topic, b"x" * 900_000, key=b"large")
        await producer.flush()
    async with Admin(unguarded.address) as admin:
        await admin.groups.alter_offsets(odd, {TopicPartition(topic, 0): 1})
    with RawClient(unguarded.port) as other:
        txn = RawTransactions(other, odd)
        txn.take_over()
        txn.write(topic)
        await browser.console.history.sample()
        pages = [
            await browser.page("/records", topic=topic),
            await browser.page("/record", topic=topic, partition=0, offset=0),
            await browser.page("/record", topic=topic, partition=0, offset=1),
            await browser.page("/groups"),
            await browser.page("/group", id=odd),
            await browser.page("/group/reset", id=odd, to="earliest"),
            await browser.page("/transactions"),
            await browser.page("/transaction/fence", id=odd),
            await browser.page("/partition", topic=topic, partition=0),
            await browser.page("/topics", q=odd),
            await browser.page("/topic", 404, name=odd),
            await browser.page("/nowhere", 404, q=odd),
        ]
        assert txn.end() == ErrorCode.NONE
    for page in pages:
        assert "<script>" not in page
        seen = re.sub(r'value="[^"]*"', "", page)
        assert not set(seen) & {"\u202e", "\x07", "\x1b"}, "but in fields, which are sent back"
        assert len(page) < 200_000
    assert "&lt;script&gt;" in pages[0]
    assert "The rest of 878.9 KiB is not shown" in as_text(pages[2])
    assert "waits" in as_text(pages[6]) or "holds back" in as_text(pages[6])


# --- changes


async def test_a_hanging_transaction_is_found_explained_and_aborted(
    browser: Browser, raw: RawClient, topic: str, group: str, unguarded: BrokerProcess
) -> None:
    hung(raw, topic)
    async with Admin(unguarded.address) as admin:
        await admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 2})
    await browser.console.history.sample()
    page = await browser.page("/transactions")
    text = as_text(page)
    assert "hangs: not held" in text
    assert f"oncelog txns abort {topic}:0 --start-offset 2" in text
    assert f"{group} waits" in text
    (link,) = [html.unescape(each) for each in re.findall(r'href="(/transaction/abort[^"]+)"', page) if topic in each]
    asked = await browser.page(link)
    assert f"txns abort --bootstrap-server {browser.address} --start-offset 2 {topic}:0" in as_text(asked)
    done = await browser.submit(asked)
    assert (done.status_code, done.headers["location"].startswith("/transactions?notice=")) == (303, True)
    said = await browser.text(done.headers["location"])
    assert f"in {topic}-0: its last stable offset is 4 now" in said
    assert last_stable_offset(raw, topic) == 4
    assert "No open transaction begins at offset 2" in await browser.text(link)
    again = await browser.submit(asked)
    assert again.status_code == 502
    assert last_stable_offset(raw, topic) == 4, "nothing was written a second time"


async def test_a_change_is_reported_although_its_effect_is_unknown(
    browser: Browser, raw: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung(raw, topic)
    asked = await browser.page("/transaction/abort", topic=topic, partition=0, offset=2)

    async def untold(*_: Any) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now")

    transactions = (await browser.console.link.admin()).transactions
    with monkeypatch.context() as patched:
        patched.setattr(type(transactions), "explain", untold)
        done = await browser.submit(asked)
    assert (done.status_code, last_stable_offset(raw, topic)) == (303, 4)
    assert f"in {topic}-0." in await browser.text(done.headers["location"])


async def test_a_coordinated_transaction_is_fenced_and_not_aborted_here_alone(
    browser: Browser, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    txn.write(topic)
    asked = await browser.text("/transaction/abort", topic=topic, partition=0, offset=0)
    assert "Its coordinator is going to end it" in asked
    fields = {"token": browser.console.token.value, "topic": topic, "partition": "0", "offset": "0"}
    refused = await browser.client.post("/transaction/abort", data=fields, headers=OURS)
    assert (refused.status_code, last_stable_offset(raw, topic)) == (409, 0)
    page = await browser.page("/transaction/fence", id=topic)
    stale = await browser.submit(page, epoch="77")
    assert (stale.status_code, last_stable_offset(raw, topic)) == (409, 0)
    assert (await browser.submit(page)).status_code == 303
    eventually(lambda: last_stable_offset(raw, topic) == 2, "what was open is aborted")
    assert txn.end() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_a_group_is_moved_as_it_was_shown_or_not_at_all(
    browser: Browser, raw: RawClient, topic: str, group: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    await write(unguarded.address, topic, *(b"%d" % n for n in range(10)))
    partition = TopicPartition(topic, 0)
    async with Admin(unguarded.address) as admin:
        await admin.groups.alter_offsets(group, {partition: 8})
        await browser.console.history.sample()
        assert f"{group} 2 Empty" in await browser.text("/groups", q=group)
        assert "Committed End Lag" in (text := await browser.text("/group", id=group))
        assert "8 10 2" in text
        page = await browser.page("/group/reset", id=group, shift="-5")
        assert "8 3 5 again" in as_text(page)
        assert f"groups reset --bootstrap-server {browser.address} --shift-by=-5 --execute {group}" in as_text(page)
        assert "2 skipped" in await browser.text("/group/reset", id=group, to="latest")
        await admin.groups.alter_offsets(group, {partition: 9})
        moved_since = await browser.submit(page)
        assert moved_since.status_code == 409
        page = await browser.page("/group/reset", id=group, shift="-5")
        assert (await browser.submit(page, plan=f"{topic},0,99")).status_code == 409
        assert (await browser.submit(page, plan="\x00,,")).status_code == 400
        done = await browser.submit(page)
        assert (done.status_code, (await admin.groups.offsets(group))[partition].offset) == (303, 4)
    assert "Moved" in await browser.text(done.headers["location"])
    assert "Not found" in await browser.text("/group", 404, id=f"{group}-not")


async def test_a_share_group_shows_its_progress_members_and_lag(
    browser: Browser, raw: RawClient, topic: str, group: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    await write(unguarded.address, topic, *(b"%d" % n for n in range(10)))
    async with Admin(unguarded.address) as admin:
        async with ShareConsumer(unguarded.address, group_id=group, share_acknowledgement_mode="explicit") as consumer:
            consumer.subscribe([topic])
            members: tuple[ShareGroupMember, ...] = ()
            while not members or not members[0].assignment:
                await consumer.poll(0.1)
                with contextlib.suppress(KafkaError):  # the group does not exist before the member's first heartbeat
                    members = (await admin.shares.describe([group]))[group].members
            text = await browser.text("/group", id=group)
            assert "State Stable Members 1 Lag" in text
            assert "Partition Start offset Lag Shared by" in text
            assert "stop its 1 member first" in text
        await admin.shares.alter_offsets(group, {TopicPartition(topic, 0): 4})
        await browser.console.history.sample()
        assert f"{group} 6 Empty share" in await browser.text("/groups", q=group)
        browser.console.shared.forget()
        text = await browser.text("/group", id=group)
        assert f"{topic} -0 4 6 nobody" in text
        assert "oncelog shares reset" in text
        page = await browser.page("/change/share-group-delete", id=group)
        assert f"shares delete --bootstrap-server {browser.address} {group}" in as_text(page)
        assert (await browser.submit(page)).status_code == 303
        assert group not in {each.group_id for each in await admin.groups.list()}


async def test_a_group_whose_name_has_lines_is_the_one_that_is_moved(
    browser: Browser, raw: RawClient, topic: str, group: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    await write(unguarded.address, topic, b"0", b"1")
    odd = f"{group}\nsecond line"
    page = await browser.page("/group/reset", id=odd, topic=topic, to="latest")
    done = await browser.submit(page)
    assert done.status_code == 303
    async with Admin(unguarded.address) as admin:
        assert (await admin.groups.offsets(odd))[TopicPartition(topic, 0)].offset == 2


# --- refusals


async def test_a_change_without_the_token_is_refused(browser: Browser, raw: RawClient, topic: str) -> None:
    hung(raw, topic)
    page = await browser.page("/transaction/abort", topic=topic, partition=0, offset=2)
    for token in ("", "guess", browser.console.token.value[:-1]):
        assert (await browser.submit(page, token=token)).status_code == 403
    fields = {"topic": topic, "partition": "0", "offset": "2"}
    assert (await browser.client.post("/transaction/abort", data=fields, headers=OURS)).status_code == 403
    assert (await browser.client.post("/transaction/abort", json=fields, headers=OURS)).status_code == 415
    for headers in ({}, {"origin": "http://evil.example"}, {**OURS, "host": "evil.example"}):
        given = {**fields, "token": browser.console.token.value}
        answer = await browser.client.post("/transaction/abort", data=given, headers=headers)
        assert answer.status_code in (403, 421)
    assert last_stable_offset(raw, topic) == 2


async def test_a_console_that_may_only_read_changes_nothing(
    raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    hung(raw, topic)
    async with opened(unguarded.address, changes=False) as browser:
        page = await browser.page("/transactions")
        assert f"txns abort {topic}:0" in as_text(page), "it says how"
        assert "/transaction/abort" not in page
        asked = await browser.page("/transaction/abort", topic=topic, partition=0, offset=2)
        assert "<form" not in asked
        fields = {"token": browser.console.token.value, "topic": topic, "partition": "0", "offset": "2"}
        refused = await browser.client.post("/transaction/abort", data=fields, headers=OURS)
        assert refused.status_code == 403
    assert last_stable_offset(raw, topic) == 2


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topic", 400),
        ("/topic?name=..%2F", 404),
        ("/topic?name=no-such-topic", 404),
        ("/partition?topic=no-such-topic&partition=0", 404),
        ("/partition?topic=t&partition=-1", 400),
        ("/partition?topic=t&partition=99999999999999999999", 400),
        ("/records?topic=t&partition=x", 400),
        ("/records?topic=t&key=" + "k" * 5000, 400),
        ("/record?topic=t&partition=0&offset=9223372036854775808", 400),
        ("/group?id=no-such-group", 404),
        ("/group/reset?id=g", 400),
        ("/group/reset?id=g&to=earliest&shift=4", 400),
        ("/group/reset?id=g&shift=" + "9" * 30, 400),
        ("/transaction/fence?id=no-such-id", 404),
        ("/static/../application.py", 404),
        ("/static/%2e%2e/application.py", 404),
    ],
)
async def test_a_senseless_request_is_refused(browser: Browser, path: str, status: int) -> None:
    answer = await browser.client.get(path)
    assert answer.status_code == status, answer.text
    assert "Traceback" not in answer.text


async def test_a_form_is_small(browser: Browser) -> None:
    large = {"token": browser.console.token.value, "plan": "x" * limits.MAX_FORM_BYTES}
    assert (await browser.client.post("/group/reset", data=large, headers=OURS)).status_code == 413
    many = {f"field{n}": "" for n in range(limits.MAX_FORM_FIELDS + 1)}
    assert (await browser.client.post("/group/reset", data=many, headers=OURS)).status_code == 400


async def test_without_a_cluster_the_page_says_what_to_do() -> None:
    async with opened(NOBODY, settings={}) as browser:
        for path in ("/", "/topics", "/groups", "/transactions", "/records?topic=t"):
            text = await browser.text(path, 503)
            assert "The cluster cannot be reached" in text
            assert NOBODY in text
            assert "--bootstrap-server" in text


async def test_a_cluster_that_goes_away_is_not_an_empty_one_and_comes_back(broker_factory: BrokerFactory) -> None:
    broker = broker_factory().start()
    async with opened(broker.address, settings=HASTY) as browser:
        await until_shown(browser, "/topics", "No topics yet")
        broker.stop()
        browser.console.shared.forget()
        for path in ("/", "/topics", "/transactions"):
            answer = await browser.client.get(path)
            assert answer.status_code in (503, 504), answer.text
            assert "data-refresh" in answer.text, "it asks again"
            assert broker.address in answer.text
        broker.start()
        await until_shown(browser, "/topics", "No topics yet")


async def until_shown(browser: Browser, path: str, text: str) -> None:
    """Reload a page until it contains the text. The result does not depend on the pause between two requests, which
    only leaves the broker some time.
    """
    async with asyncio.timeout(100):
        while text not in as_text((await browser.client.get(path)).text):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


# --- over a socket


@asynccontextmanager
async def served(address: str) -> AsyncIterator[tuple[int, Any]]:
    """Yield the port and the application."""
    app = application(site_of([Cluster("test", address, PATIENT)]))
    listening = listening_socket("127.0.0.1", 0)
    ready = asyncio.Event()
    server = Serving(app, ready.set)
    serving = asyncio.ensure_future(server._serve(sockets=[listening]))
    try:
        await asyncio.wait_for(ready.wait(), 60)
        yield listening.getsockname()[1], app
    finally:
        server.should_exit = True
        await serving
        listening.close()


async def events(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    while line := await asyncio.wait_for(reader.readline(), 60):
        if line.startswith(b"event: "):
            kind = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])


async def test_a_tail_shows_records_as_they_come_and_tails_are_few(
    raw: RawClient, topic: str, unguarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog_console.pages.tail.MAX_TAILS", 1)
    raw.create_topic(topic)
    is_over = asyncio.Event()
    answer = EventStream.__call__

    async def noted(stream: EventStream, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(stream, scope, receive, send)
        is_over.set()

    monkeypatch.setattr(EventStream, "__call__", noted)
    async with served(unguarded.address) as (port, app):
        request = f"GET /tail?topic={topic} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        told = events(reader)
        assert (await anext(told))[0] == "ready"
        second, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(request)
        assert b" 503 " in await asyncio.wait_for(second.readline(), 60)
        other.close()
        records: list[dict[str, Any]] = []
        kind, data = await anext(told)
        assert (kind, data["records"]) == ("records", []), "it has looked: what comes now is new"
        await write(unguarded.address, topic, SCRIPT.encode(), None, key=b"\x00key")
        while len(records) < 2:
            kind, data = await anext(told)
            records += data["records"]
        assert [record["offset"] for record in records] == [0, 1]
        assert records[0]["value"] == {"kind": "text", "text": SCRIPT, "cut": False, "note": ""}
        assert records[1]["value"]["kind"] == "null"
        assert records[0]["key"]["text"] in ("\\x00key", "00 6b 65 79")
        writer.close()
        await asyncio.wait_for(is_over.wait(), 60)
        assert app.state.site.capacity.tails == 0


async def told_before_the_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""


async def test_connections_are_few(unguarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_console.serving.MAX_CONNECTIONS", 2)
    async with served(unguarded.address) as (port, _):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in kept:
            writer.write(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 404 " in await asyncio.wait_for(reader.readline(), 60)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 404 " in await asyncio.wait_for(reader.readline(), 60), "who comes finds a place"
        while await asyncio.wait_for(kept[0][0].readline(), 60):
            pass  # the server closed this connection, because it had been idle for longer than all other connections
        for _, each in [*kept, (reader, writer)]:
            each.close()


async def test_a_connection_without_request_is_closed(
    unguarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog_console.serving.HEAD_SECONDS", 0.2)
    async with served(unguarded.address) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: loc")
        assert await told_before_the_end(reader) == b""
        writer.close()


def test_the_command_serves_until_it_is_told_to_stop(unguarded: BrokerProcess) -> None:
    arguments = [COMMAND, "console", "--bootstrap-server", unguarded.address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        assert httpx.get(found[0], timeout=60).status_code == 200
        assert httpx.get(found[0], headers={"host": "evil.example"}, timeout=60).status_code == 421
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors


def test_an_unusable_listening_address_is_reported(unguarded: BrokerProcess) -> None:
    taken = f"127.0.0.1:{unguarded.port}"
    arguments = ["console", "--bootstrap-server", unguarded.address, "--listen"]
    done = run_oncelog_text(*arguments, taken)
    assert (done.returncode, "cannot listen on" in done.stderr) == (1, True), done.stderr
    assert run_oncelog_text(*arguments, "nowhere").returncode == 2
