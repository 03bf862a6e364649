"""Tests that axe-core finds no violation of WCAG in any page, in light and in dark mode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from conftest import PATIENCE_MS, WIDE, running_console
from foreign_clients import TIMEOUT_SECONDS
from raw_client import RawClient
from raw_transactions import RawTransactions
from tests.support.kafka_connect import FakeConnect, kafka_connect

PAGES = (
    "/", "/topics", "/topic?name=axe&all=1", "/partition?topic=axe&partition=0", "/records?topic=axe",
    "/records?topic=axe&value=$.n>1&header=h", "/record?topic=axe&partition=0&offset=0", "/groups",
    "/group?id=axe-group",
    "/group/reset?id=axe-group&to=earliest", "/transactions", "/transaction/fence?id=axe-open", "/queries", "/acls",
    "/users", "/quotas", "/connect", "/connector?at=main&name=orders <sink>",
    "/connector/restart?at=main&name=orders <sink>", "/change/topic-create", "/change/topic-alter?name=axe",
    "/change/topic-delete?name=axe", "/change/record-produce?topic=axe", "/change/records-delete?topic=axe",
    "/change/group-delete?id=axe-group", "/change/acl-add", "/change/user-set", "/change/quota-set", "/nowhere",
)  # fmt: skip
CHANGE = "/change/topic-create"


@pytest.fixture(scope="module")
def fake_connect() -> Iterator[FakeConnect]:
    """A Kafka Connect on an event loop in a separate thread, beside Playwright's own loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = kafka_connect()
    yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(60)
    asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


@pytest.fixture(scope="module")
def filled(
    unguarded: BrokerProcess, fake_connect: FakeConnect, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a console whose cluster has objects of every kind."""
    with RawClient(unguarded.port) as raw:
        raw.create_topic("axe")
        producer = confluent_kafka.Producer({"bootstrap.servers": unguarded.address})
        for n in range(3):
            producer.produce("axe", b'{"n": %d}' % n, b"key", headers={"h": "1"})
        assert producer.flush(TIMEOUT_SECONDS) == 0
        consumer = confluent_kafka.Consumer({"bootstrap.servers": unguarded.address, "group.id": "axe-group"})
        consumer.commit(offsets=[confluent_kafka.TopicPartition("axe", 0, 1)], asynchronous=False)
        consumer.close()
        txn = RawTransactions(raw, "axe-open")
        txn.take_over()
        txn.write("axe")
        arguments = ["--bootstrap-server", unguarded.address, "--allow-changes"]
        with running_console(*arguments, "--connect", f"main={fake_connect.address}") as address:
            yield address
        txn.end()


def violations(page: Any, axe: str) -> list[str]:
    """Return what axe-core finds on the open page."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_an_accessibility_violation(chromium: Any, axe: str, filled: str, scheme: str) -> None:
    context = chromium.new_context(viewport=WIDE, base_url=filled, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    found: dict[str, list[str]] = {}
    for path in PAGES:
        page.goto(path)
        if wrong := violations(page, axe):
            found[path] = wrong
    page.goto(CHANGE)
    page.get_by_label("Name").fill("axe-2")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Create it").wait_for()
    if wrong := violations(page, axe):
        found[f"{CHANGE}, shown"] = wrong
    context.close()
    assert found == {}


def test_the_list_of_clusters_and_the_login_have_no_accessibility_violation(
    chromium: Any, axe: str, unguarded: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    file = tmp_path / "console.toml"
    file.write_text(
        f'[clusters.one]\nbootstrap_servers = "{unguarded.address}"\n[clusters.two]\nlogin = "sasl"\n'
        f'bootstrap_servers = "{unguarded.address}"\ncommand_config = "client.properties"\n'
    )
    with running_console("--config", str(file)) as address:
        context = chromium.new_context(viewport=WIDE, base_url=address)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        for path in ("/", "/c/two/topics", "/c/one/topics"):
            page.goto(path)
            assert violations(page, axe) == []
        context.close()
