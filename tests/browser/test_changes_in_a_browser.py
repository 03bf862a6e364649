"""Tests changes by mouse, searches, downloads and logins in Chromium. These tests create the pictures console-*.png."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pytest
from broker_process import BrokerProcess
from conftest import ORDER, PATIENCE_MS, WIDE, keep, keep_picture, running_console
from foreign_clients import TIMEOUT_SECONDS
from raw_client import RawClient
from secured_broker import ADMIN, ADMIN_PASSWORD, SecuredBroker

GUARDED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": "",
}


@pytest.fixture
def orders(unguarded: BrokerProcess) -> None:
    """Create the topic `orders`, whose values are in Avro."""
    with RawClient(unguarded.port) as raw:
        raw.create_topic("orders")
    producer = confluent_kafka.Producer({"bootstrap.servers": unguarded.address})
    schema = fastavro.parse_schema(json.loads(ORDER))
    for number in range(12):
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, {"id": number, "item": "tea", "amount": number * 3})
        producer.produce("orders", value.getvalue(), f"customer-{number % 3}", headers={"trace": f"{number}"})
    assert producer.flush(TIMEOUT_SECONDS) == 0


def test_a_topic_is_created_changed_and_deleted_by_mouse(page: Any) -> None:
    page.goto("/topics")
    page.get_by_role("link", name="Create a topic…").click()
    page.get_by_label("Name").fill("invoices")
    page.get_by_label("Partitions", exact=True).fill("3")
    page.get_by_label("Settings, one on each line").fill("retention.ms=86400000")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("heading", name="Create the topic invoices?").wait_for()
    assert "oncelog topics create" in page.locator(".command code").inner_text()
    keep_picture(page, "console-change")
    page.get_by_role("button", name="Create it").click()
    page.get_by_role("status").get_by_text("Created the topic invoices.").wait_for()
    page.get_by_role("link", name="Produce…").click()
    page.get_by_label("Key").fill("invoice-1")
    page.get_by_label("Value", exact=True).fill('{"total": 42}')
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Produce it").click()
    page.get_by_role("status").get_by_text("Produced a record to invoices").wait_for()
    assert '{"total": 42}' in page.locator("#records").inner_text()
    page.goto("/topic?name=invoices")
    page.get_by_role("link", name="Delete…", exact=True).click()
    page.get_by_text("This cannot be undone").wait_for()
    page.get_by_role("button", name="Delete it").click()
    page.get_by_role("status").get_by_text("Deleted the topic invoices.").wait_for()


def test_avro_records_are_searched_and_saved_by_mouse(page: Any, orders: None) -> None:
    page.goto("/records?topic=orders")
    page.get_by_label("Value", exact=True).fill("$.amount > 20")
    page.get_by_role("button", name="Look").click()
    page.get_by_text("5 records with this search among 12").wait_for()
    page.get_by_text("by order.avsc").first.wait_for()
    keep_picture(page, "console-search")
    with page.expect_download() as saved:
        page.get_by_role("link", name="JSON lines").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert [json.loads(line)["value"]["amount"] for line in lines] == [21, 24, 27, 30, 33]
    page.get_by_label("Value", exact=True).fill("$.amount >")
    page.get_by_role("button", name="Look").click()
    page.get_by_role("alert").get_by_text("is not an expression").wait_for()


def test_a_quota_is_set_and_removed_by_mouse(page: Any) -> None:
    page.goto("/acls")
    page.get_by_text("The brokers check no ACLs").wait_for()
    page.get_by_role("navigation", name="Access").get_by_role("link", name="Quotas").click()
    page.get_by_role("link", name="Set a quota…").click()
    page.get_by_label("User", exact=True).fill("alice")
    page.get_by_label("Produced bytes a second").fill("1000000")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_text("producer_byte_rate").first.wait_for()
    page.get_by_role("button", name="Set it").click()
    page.get_by_role("status").get_by_text("Set the quota of user alice").wait_for()
    keep(page, "quotas")
    page.get_by_role("link", name="Remove the quotas of user alice").click()
    page.get_by_role("button", name="Remove it").click()
    page.get_by_role("status").get_by_text("Removed the quotas").wait_for()


def test_a_user_logs_in_to_one_of_several_clusters_and_out(
    chromium: Any, unguarded: BrokerProcess, tmp_path: Path
) -> None:
    with SecuredBroker(tmp_path, GUARDED) as broker:
        (tmp_path / "client.properties").write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
        file = tmp_path / "console.toml"
        file.write_text(
            f'[clusters.production]\nbootstrap_servers = "{broker.process.address}"\nlogin = "sasl"\n'
            'command_config = "client.properties"\nallow_changes = true\n'
            f'[clusters.test]\nbootstrap_servers = "{unguarded.address}"\n'
        )
        with running_console("--config", str(file)) as address:
            context = chromium.new_context(viewport=WIDE, base_url=address)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.goto("/")
            keep(page, "clusters")
            page.get_by_role("link", name="production").click()
            page.get_by_role("heading", name="Log in to production").wait_for()
            keep(page, "login")
            page.get_by_label("Name").fill(ADMIN)
            page.get_by_label("Password").fill("wrong")
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("alert").get_by_text("does not know this name").wait_for()
            page.get_by_label("Password").fill(ADMIN_PASSWORD)
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("button", name="Log out").wait_for()
            page.get_by_role("navigation", name="Pages").get_by_role("link", name="Access").click()
            page.wait_for_url(re.compile("/c/production/acls"))
            page.get_by_role("link", name="Add an ACL…").click()
            page.get_by_label("Principal").fill("User:alice")
            page.get_by_label("Operation").select_option("Read")
            page.get_by_label("Name", exact=True).fill("orders")
            page.get_by_role("button", name="Show what would change").click()
            page.get_by_role("button", name="Add it").click()
            page.get_by_role("status").get_by_text("Added the ACL").wait_for()
            keep_picture(page, "console-access")
            page.get_by_role("button", name="Log out").click()
            page.get_by_text("You are logged out.").wait_for()
            page.goto("/c/production/acls")
            page.get_by_role("heading", name="Log in to production").wait_for()
            context.close()
