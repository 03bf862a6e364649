"""Tests changes that the console makes to a live broker with an authorizer. The console shows each change before
executing it, and a command that would make the same change.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from broker_process import BrokerProcess
from console_browser import OURS, Browser, as_text, opened
from warm_commands import run_oncelog_text

from oncelog import Admin, Consumer, Producer, TopicPartition
from oncelog.admin import ConfigResource, NewTopic

GUARDED = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("guarded") / "data", GUARDED) as process:
        yield process


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("pages.page_request", "link"):
        monkeypatch.setattr(f"oncelog_console.{place}.PAGE_SECONDS", 90.0)


@pytest_asyncio.fixture
async def browser(guarded: BrokerProcess) -> AsyncIterator[Browser]:
    async with opened(guarded.address) as made:
        yield made


@pytest_asyncio.fixture
async def admin(guarded: BrokerProcess) -> AsyncIterator[Admin]:
    async with Admin(guarded.address) as made:
        yield made


def command_in(page: str) -> str:
    """Return the command that a page displays for copying."""
    (command,) = re.findall(r'<p class="command">.*?<code tabindex="0">(.*?)</code>', page, re.DOTALL)
    return html.unescape(command)


def run_copied(command: str, *more: str) -> None:
    """Run a command as a shell would run it, with the arguments `more` appended."""
    words, stdin = shlex.split(command), ""
    if words[0] == "printf":
        bar = words.index("|")
        stdin, words = words[2] + "\n", words[bar + 1 :]
    assert words[0] == "oncelog"
    done = run_oncelog_text(*words[1:], *more, stdin=stdin)
    assert done.returncode == 0, done.stderr


async def confirmed(browser: Browser, shown: str) -> str:
    """Confirm a change, and return what the next page says about the change."""
    done = await browser.submit(shown)
    assert done.status_code == 303, as_text(done.text)
    return await browser.text(done.headers["location"])


# --- topics


async def test_a_topic_is_created_as_shown_and_as_the_command_does(browser: Browser, admin: Admin, topic: str) -> None:
    form = await browser.page("/change/topic-create")
    shown = await browser.fill(form, name=topic, partitions="3", settings="retention.ms=1000\nmax.message.bytes=2000")
    assert "Partitions 3 Replicas of each 1" in as_text(shown)
    assert topic not in await admin.list_topics()
    assert f"Created the topic {topic}." in await confirmed(browser, shown)
    other = f"{topic}-copied"
    run_copied(command_in(shown).replace(topic, other))
    found = await admin.describe_topics([topic, other])
    settings = await admin.describe_configs([ConfigResource.topic(name) for name in (topic, other)])
    for name in (topic, other):
        assert len(found[name].partitions) == 3
        of_topic = settings[ConfigResource.topic(name)]
        assert (of_topic["retention.ms"].value, of_topic["max.message.bytes"].value) == ("1000", "2000")


async def test_a_change_that_the_cluster_would_refuse_is_reported_before(
    browser: Browser, admin: Admin, topic: str
) -> None:
    await admin.create_topics([NewTopic(topic, 1)])
    form = await browser.page("/change/topic-create")
    for typed, why in (
        ({"name": topic}, "already exists"),
        ({"name": "a/b"}, "INVALID_TOPIC"),
        ({"name": "x", "partitions": "none"}, "the number of partitions is a number from 1"),
        ({"name": "x", "settings": "retention.ms"}, "a setting is KEY=VALUE"),
        ({"name": "x", "settings": "retention.ms=soon"}, "INVALID_CONFIG"),
        ({"name": ""}, "the name is missing"),
    ):
        answer = await browser.send(form, "edit", **typed)
        assert answer.status_code in (400, 409), typed
        assert why in as_text(answer.text), typed


async def test_a_topic_is_changed_as_shown_and_as_the_command_does(browser: Browser, admin: Admin, topic: str) -> None:
    other = f"{topic}-copied"
    names = [topic, other]
    await admin.create_topics([NewTopic(name, 1, configs={"retention.ms": "1000"}) for name in names])
    form = await browser.page("/change/topic-alter", name=topic)
    shown = await browser.fill(form, partitions="2", settings="max.message.bytes=2000", reset="retention.ms")
    text = as_text(shown)
    assert "max.message.bytes" in text
    assert "retention.ms 1000 → the default" in text
    assert "Partitions 1 → 2" in text
    assert f"Changed the topic {topic}." in await confirmed(browser, shown)
    run_copied(command_in(shown).replace(topic, other))
    found = await admin.describe_topics(names)
    settings = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    for name in names:
        of_topic = settings[ConfigResource.topic(name)]
        assert len(found[name].partitions) == 2
        assert (of_topic["retention.ms"].is_default, of_topic["max.message.bytes"].value) == (True, "2000")
    nothing = await browser.send(form, "edit")
    assert "nothing is to be changed" in as_text(nothing.text)


async def test_a_topic_is_deleted_as_shown_and_as_the_command_does(browser: Browser, admin: Admin, topic: str) -> None:
    other = f"{topic}-copied"
    await admin.create_topics([NewTopic(topic, 1), NewTopic(other, 1)])
    shown = await browser.page("/change/topic-delete", name=topic)
    assert "All its records are deleted" in as_text(shown)
    assert f"Deleted the topic {topic}." in await confirmed(browser, shown)
    run_copied(command_in(shown).replace(topic, other), "--yes")
    assert not {topic, other} & set(await admin.list_topics())
    again = await browser.submit(shown)
    assert again.status_code == 409


# --- records


async def records_of(address: str, topic: str) -> list[Any]:
    async with Consumer(address, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[Any] = []
        while len(found) < 2:
            for records in (await consumer.poll(timeout_ms=30_000)).values():
                found += records
        return found


async def test_a_record_is_produced_as_shown_and_as_the_command_does(
    browser: Browser, admin: Admin, topic: str, guarded: BrokerProcess
) -> None:
    await admin.create_topics([NewTopic(topic, 1)])
    form = await browser.page("/change/record-produce", topic=topic)
    value = '{"it\'s": "tea",\n "price": "3 €"}'
    shown = await browser.fill(form, key="k ey", value=value, value_is="text", headers="trace=1", partition="0")
    assert "partition 0, offset 0" in await confirmed(browser, shown)
    run_copied(command_in(shown))
    for record in await records_of(guarded.address, topic):
        assert (record.key, record.value) == (b"k ey", value.encode())
        assert list(record.headers) == [("trace", b"1")]
    binary = await browser.fill(form, value="AP8=", value_is="base64")
    assert '"encoding": "base64"' in command_in(binary)
    assert "Produced a record" in await confirmed(browser, binary)
    wrong = await browser.send(form, "edit", value="not base64", value_is="base64")
    assert "is not base64" in as_text(wrong.text)
    elsewhere = await browser.send(form, "edit", value="x", value_is="text", partition="7")
    assert "has the partitions 0 to 0, not 7" in as_text(elsewhere.text)


async def test_records_are_deleted_as_shown_and_as_the_command_does(
    browser: Browser, admin: Admin, topic: str, guarded: BrokerProcess
) -> None:
    await admin.create_topics([NewTopic(topic, 2)])
    async with Producer(guarded.address) as producer:
        for n in range(10):
            await producer.send(topic, b"%d" % n, partition=n % 2)
        await producer.flush()
    form = await browser.page("/change/records-delete", topic=topic)
    shown = await browser.fill(form, partition="0", before="3")
    assert "First offset 0 → 3 Offsets 3" in as_text(shown)
    assert "its first offset is 3 now" in await confirmed(browser, shown)
    run_copied(command_in(shown).replace(f"{topic}:0", f"{topic}:1"), "--yes")
    everything = await browser.fill(form, partition="0", all="1")
    assert "its first offset is 5 now" in await confirmed(browser, everything)
    text = await browser.text("/topic", name=topic)
    assert re.search(r"0 1 5 5 0 .*1 1 3 5 0", text), text
    refused = await browser.send(form, "edit", partition="0")
    assert "either an offset is needed" in as_text(refused.text)


# --- groups


async def test_offsets_and_groups_are_deleted_as_shown_and_as_the_commands_do(
    browser: Browser, admin: Admin, topic: str, group: str
) -> None:
    await admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-2", 1)])
    odd = f"{group} 'odd'\n\u202e"
    offsets = {TopicPartition(topic, 0): 0, TopicPartition(f"{topic}-2", 0): 0}
    for each in (odd, f"{group}-2"):
        await admin.groups.alter_offsets(each, offsets)
    page = await browser.page("/group", id=odd)
    links = [html.unescape(link) for link in re.findall(r'href="(/change/[^"]+)"', page)]
    first = await browser.page(next(link for link in links if f"topic={topic}-2" in link))
    assert "Deleted the offsets" in await confirmed(browser, first)
    assert list(await admin.groups.offsets(odd)) == [TopicPartition(topic, 0)]
    command = command_in(await browser.page("/change/offsets-delete", id=f"{group}-2", topic=f"{topic}-2"))
    run_copied(command, "--yes")
    assert list(await admin.groups.offsets(f"{group}-2")) == [TopicPartition(topic, 0)]
    shown = await browser.page(next(link for link in links if "/change/group-delete" in link))
    assert "\\u202e" in command_in(shown).lower() or "\\U0000202e" in command_in(shown)
    assert "Deleted the group" in await confirmed(browser, shown)
    run_copied(command_in(await browser.page("/change/group-delete", id=f"{group}-2")), "--yes")
    left = {each.group_id for each in await admin.groups.list()}
    assert not {odd, f"{group}-2"} & left


# --- access


async def test_acls_are_added_and_removed_as_shown_and_as_the_commands_do(
    browser: Browser, admin: Admin, topic: str
) -> None:
    form = await browser.page("/change/acl-add")
    typed = {
        "principal": "User:alice o'hara", "permission": "Deny", "operation": "Read", "resource": "Topic",
        "name": topic, "pattern": "Prefixed", "host": "10.0.0.1",
    }  # fmt: skip
    shown = await browser.fill(form, **typed)
    assert "A deny wins over every allow" in as_text(shown)
    assert "Added the ACL" in await confirmed(browser, shown)
    (added,) = [acl for acl in await admin.acls.describe() if acl.pattern.name == topic]
    assert f"User:alice o'hara deny Read Topic {topic}… 10.0.0.1 remove…" in await browser.text("/acls", q=topic)
    page = await browser.page("/acls", q=topic)
    (link,) = re.findall(r'href="(/change/acl-remove[^"]+)"', page)
    removal = await browser.page(html.unescape(link))
    assert "Removed the ACL" in await confirmed(browser, removal)
    assert not [acl for acl in await admin.acls.describe() if acl.pattern.name == topic]
    run_copied(command_in(shown))
    assert [acl for acl in await admin.acls.describe() if acl.pattern.name == topic] == [added]
    run_copied(command_in(removal), "--yes")
    assert not [acl for acl in await admin.acls.describe() if acl.pattern.name == topic]
    cluster = await browser.fill(form, **(typed | {"resource": "Cluster", "operation": "Alter", "permission": "Allow"}))
    assert "--cluster" in command_in(cluster)
    wrong = await browser.send(form, "edit", **(typed | {"operation": "ClusterAction"}))
    assert "of a Topic there are the operations" in as_text(wrong.text)


async def test_users_are_set_and_removed_and_no_page_has_a_password(
    browser: Browser, admin: Admin, topic: str, tmp_path: Path
) -> None:
    name, password = f"user {topic}", "p4ssw0rd-of-alice"
    form = await browser.page("/change/user-set")
    differing = await browser.send(form, "edit", name=name, password=password, again="other", mechanism="both")
    assert differing.status_code == 400
    assert password not in differing.text
    done = await browser.send(form, "edit", name=name, password=password, again=password, mechanism="both")
    assert done.status_code == 303, as_text(done.text)
    said = await browser.text(done.headers["location"])
    assert f"Set the password of {name}." in said
    assert password not in said
    found = (await admin.describe_user_scram_credentials([name]))[name]
    (command,) = re.findall(r"does the same: (oncelog users set .*?'user [^']*')", said)
    file = tmp_path / "password"
    file.write_text(password)
    shown = await browser.page("/change/user-remove", name=name)
    assert "Removed the user" in await confirmed(browser, shown)
    run_copied(command, "--password-file", str(file))
    assert (await admin.describe_user_scram_credentials([name]))[name] == found
    run_copied(command_in(shown))
    assert name not in await admin.describe_user_scram_credentials()


async def test_quotas_are_set_and_removed_as_shown_and_as_the_commands_do(browser: Browser, admin: Admin) -> None:
    form = await browser.page("/change/quota-set")
    typed = {"user": "al'ice", "client_id_default": "1", "producer_byte_rate": "1000", "request_percentage": "12.5"}
    shown = await browser.fill(form, **typed)
    assert "producer_byte_rate none → 1000" in as_text(shown)
    assert "Set the quota of user al'ice, each client id" in await confirmed(browser, shown)
    before = await admin.describe_client_quotas()
    assert list(before.values()) == [{"producer_byte_rate": 1000, "request_percentage": 12.5}]
    page = await browser.page("/quotas")
    (link,) = re.findall(r'href="(/change/quota-remove[^"]+)"', page)
    removal = await browser.page(html.unescape(link))
    assert "Removed the quotas" in await confirmed(browser, removal)
    assert await admin.describe_client_quotas() == {}
    run_copied(command_in(shown))
    assert await admin.describe_client_quotas() == before
    run_copied(command_in(removal))
    assert await admin.describe_client_quotas() == {}
    for wrong, why in (
        ({"user": "a", "ip": "10.0.0.1", "connection_creation_rate": "1"}, "an address has quotas of its own"),
        ({"user": "a", "connection_creation_rate": "1"}, "has no connection_creation_rate"),
        ({"user": "a", "producer_byte_rate": "-1"}, "is a number above 0"),
        ({"producer_byte_rate": "1"}, "a user, a client id or an address is needed"),
    ):
        assert why in as_text((await browser.send(form, "edit", **wrong)).text)


async def test_a_cluster_that_checks_no_acls_says_so(broker: BrokerProcess) -> None:
    async with opened(broker.address) as browser:
        assert "The brokers check no ACLs" in await browser.text("/acls")


# --- which users may make changes


async def test_a_change_without_token_or_in_a_read_only_console_is_refused(
    browser: Browser, admin: Admin, topic: str, guarded: BrokerProcess
) -> None:
    fields = {"name": topic, "step": "do"}
    path = "/change/topic-create"
    assert (await browser.client.post(path, data=fields, headers=OURS)).status_code == 403
    token = {"token": browser.console.token.value}
    elsewhere = {**OURS, "origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    assert (await browser.client.post(path, data=fields | token, headers=elsewhere)).status_code == 403
    assert topic not in await admin.list_topics()
    assert (await browser.client.get("/change/nothing")).status_code == 404
    async with opened(guarded.address, changes=False) as reading:
        assert "This console is read-only" in await reading.text(path)
        sent = fields | {"token": reading.console.token.value}
        assert (await reading.client.post(path, data=sent, headers=OURS)).status_code == 403
        for page in ("/topics", "/acls", "/users", "/quotas"):
            assert "/change/" not in await reading.page(page)
    assert topic not in await admin.list_topics()
