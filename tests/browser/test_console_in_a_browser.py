"""Tests users' actions on the console, by mouse and by keys, in light and dark mode, on a telephone and on a large
screen.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from conftest import WIDE, keep, keep_picture
from foreign_clients import TIMEOUT_SECONDS, eventually
from hanging import hang, hung
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset
from warm_commands import run_oncelog_text

from oncelog_protocol.errors import ErrorCode

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
HANGS_FOR_MS = 512_000
SIZES = {"telephone": (360, 780), "desk": (1280, 900), "wall": (3840, 2160)}


@pytest.fixture
def raw(unguarded: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(unguarded.port) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def write(broker: BrokerProcess, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, b"customer-1", partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def begun(raw: RawClient, topic: str) -> RawTransactions:
    """Return a producer with a committed, an aborted and an open transaction."""
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for commits in (True, False):
        txn.write(topic)
        assert txn.end(commits=commits) == ErrorCode.NONE
        eventually(lambda: is_stable(raw, topic), "the transaction is complete")
    txn.write(topic)
    return txn


def committed(broker: BrokerProcess, group: str, topic: str, position: str) -> None:
    arguments = ["groups", "reset", group, "--topic", topic, "--to", position, "--execute"]
    done = run_oncelog_text(*arguments, "--bootstrap-server", broker.address)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_its_screen(
    page: Any, raw: RawClient, topic: str, unguarded: BrokerProcess, size: str, scheme: str
) -> None:
    txn = begun(raw, topic)
    write(unguarded, topic, b'{"item": "tea", "quantity": 3}', SCRIPT.encode(), b"\x00\xff\x01", b"w" * 5000)
    group = f"readers-of-{topic}"
    committed(unguarded, group, topic, "4")
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    pages = {
        "brokers": ("/", "Brokers"),
        "topics": ("/topics", "Topics"),
        "topic": (f"/topic?name={topic}", topic),
        "partition": (f"/partition?topic={topic}&partition=0", "Partition 0"),
        "records": (f"/records?topic={topic}", "Records"),
        "record": (f"/record?topic={topic}&partition=0&offset=5", "Offset 5"),
        "groups": ("/groups", "Groups"),
        "group": (f"/group?id={group}", group),
        "reset": (f"/group/reset?id={group}&to=earliest", "Move this group?"),
        "transactions": ("/transactions", "Open transactions"),
        "fence": (f"/transaction/fence?id={topic}", f"Fence {topic}?"),
        "search": (f"/records?topic={topic}&value=$.quantity>1&header=x", "Records"),
        "access": ("/acls", "Access"),
        "quotas": ("/quotas", "Access"),
        "create": ("/change/topic-create", "Create a topic"),
        "produce": (f"/change/record-produce?topic={topic}", "Produce a record"),
        "acl": ("/change/acl-add", "Add an ACL"),
        "quota": ("/change/quota-set", "Set a quota"),
        "delete": (f"/change/topic-delete?name={topic}", f"Delete the topic {topic}?"),
    }
    for name, (path, title) in pages.items():
        answer = page.goto(path)
        assert answer.status == 200
        assert title in page.locator("h1").inner_text()
        excess = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert excess <= 0, f"{name} is too wide for {width} pixels"
        keep(page, f"{name}-{size}-{scheme}")
    assert txn.end() == ErrorCode.NONE


def test_a_hanging_transaction_is_found_explained_and_ended_by_mouse(
    page: Any, raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    hung(raw, topic)
    write(unguarded, topic, b"behind it")
    committed(unguarded, f"waits-for-{topic}", topic, "2")
    page.goto("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Transactions").click()
    found = page.locator("article.hangs", has_text=topic)
    found.get_by_text("no coordinator will end it").wait_for()
    found.get_by_text(f"oncelog txns abort {topic}:0 --start-offset 2").wait_for()
    found.get_by_text(f"waits-for-{topic}"[:30]).wait_for()
    keep(page, "hanging-1-found")
    found.get_by_role("link", name=f"{topic}-0").click()
    page.get_by_text("Why readers wait").wait_for()
    page.locator("svg.log text.stable").wait_for()
    keep(page, "hanging-2-its-log")
    page.go_back()
    found.get_by_role("link", name="Abort it here…").click()
    page.get_by_text("This cannot be undone").wait_for()
    keep(page, "hanging-3-asked-back")
    assert last_stable_offset(raw, topic) == 2
    page.get_by_role("button", name="Abort it").click()
    page.get_by_role("status").get_by_text(f"in {topic}-0: its last stable offset is 5 now").wait_for()
    assert page.locator("article", has_text=topic).count() == 0
    keep(page, "hanging-4-ended")
    assert last_stable_offset(raw, topic) == 5


def test_open_transactions_show_whom_each_holds_back(page: Any, raw: RawClient, unguarded: BrokerProcess) -> None:
    """This test creates the picture console.png: one transaction that hangs, two that make progress."""
    for topic in ("bills", "parcels", "invoices"):
        raw.create_topic(topic)
    billing, shipper = RawTransactions(raw, "billing-1"), RawTransactions(raw, "shipper")
    for txn, topics in ((billing, ("bills", "parcels")), (shipper, ("parcels",))):
        txn.take_over(timeout_ms=600_000)
        for topic in topics:
            txn.write(topic)
    hang(RawTransactions(raw, "legacy-importer", timestamp_ms=int(time.time() * 1000) - HANGS_FOR_MS), "invoices")
    write(unguarded, "invoices", *(b"invoice %d" % number for number in range(40)))
    committed(unguarded, "invoices-report", "invoices", "2")
    page.goto("/transactions")
    found = page.locator("article.hangs", has_text="legacy-importer")
    found.get_by_text("holds back 41").wait_for()
    found.get_by_text("invoices-report waits").wait_for()
    found.get_by_text("oncelog txns abort invoices:0 --start-offset 2").wait_for()
    for name in ("billing-1", "shipper"):
        page.locator("article", has_text=name).get_by_text("Ongoing").wait_for()
    keep_picture(page, "console")
    found.get_by_role("link", name="Abort it here…").click()
    page.get_by_role("button", name="Abort it").click()
    page.get_by_role("status").get_by_text("in invoices-0").wait_for()
    assert [billing.end(), shipper.end()] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_page_shows_what_begins_and_ends_by_itself(page: Any, raw: RawClient, topic: str) -> None:
    page.goto("/transactions")
    page.get_by_role("button", name="Live").wait_for()
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    txn.write(topic)
    article = page.locator("article", has_text=topic)
    article.wait_for()
    if article.locator("details").get_attribute("open") is None:
        article.locator("summary").click()
    before = article.locator(".age b").inner_text()
    page.wait_for_function(
        "([topic, before]) => [...document.querySelectorAll('article')].some("
        "(each) => each.textContent.includes(topic) && each.querySelector('.age b').textContent !== before)",
        arg=[topic, before],
    )
    assert article.locator("details").get_attribute("open") is not None, "what was opened stays open"
    assert txn.end() == ErrorCode.NONE
    article.wait_for(state="detached")


def test_a_follower_of_a_topic_sees_records_as_text(
    page: Any, raw: RawClient, topic: str, unguarded: BrokerProcess
) -> None:
    raw.create_topic(topic)
    page.goto(f"/records?topic={topic}")
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("Waiting for records").wait_for()
    wrote = 0
    while page.locator("#records tr").count() == 0:  # records from before the start of the tail are not shown
        write(unguarded, topic, SCRIPT.encode())
        wrote += 1
        page.wait_for_timeout(200)
        assert wrote < 300
    assert page.locator("#records tr td.value").first.inner_text() == SCRIPT
    assert page.locator("#records img, #records script").count() == 0
    keep(page, "tail")
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()


def test_a_group_is_moved_by_mouse(page: Any, raw: RawClient, topic: str, unguarded: BrokerProcess) -> None:
    raw.create_topic(topic)
    write(unguarded, topic, *(b"%d" % n for n in range(6)))
    group = f"readers-of-{topic}"
    committed(unguarded, group, topic, "5")
    page.goto(f"/group?id={group}")
    page.get_by_label("or shift by").fill("-4")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_text("4 again").wait_for()
    page.get_by_role("button", name="Move the group").click()
    page.get_by_role("status").get_by_text("Moved").wait_for()
    assert re.search(r"\b1\s+6\s+5\b", page.locator("main").inner_text()), "committed, end, lag"


def test_every_page_is_reachable_by_keyboard(page: Any, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    page.goto("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**q={topic}*")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == topic
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/topic?name={topic}")


def test_colours_can_be_told_apart(page: Any) -> None:
    """The contrast of text and background must be at least 4.5 to 1 (WCAG AA) in both colour schemes."""
    page.set_viewport_size(WIDE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto("/")
        colours = page.evaluate(
            "() => { const style = getComputedStyle(document.documentElement);"
            " return Object.fromEntries(['page', 'surface', 'sunken', 'ink', 'muted', 'accent', 'accent-ink',"
            " 'accent-soft', 'good', 'good-soft', 'warn', 'warn-soft', 'bad', 'bad-soft'].map("
            "(name) => [name, style.getPropertyValue(`--${name}`).trim()])); }"
        )
        pairs = [(text, ground) for text in ("ink", "muted", "accent", "bad", "warn") for ground in ("page", "surface")]
        pairs += [(name, f"{name}-soft") for name in ("good", "warn", "bad", "accent")]
        pairs += [("accent-ink", "accent"), ("muted", "sunken"), ("ink", "accent-soft"), ("surface", "bad")]
        poor = {
            (scheme, text, ground): round(found, 2)
            for text, ground in pairs
            if (found := contrast(colours[text], colours[ground])) < 4.5
        }
        assert poor == {}


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
