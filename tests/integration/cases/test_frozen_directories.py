"""Tests that this version opens data directories of other versions with all their contents, and that other versions can
open its data directories.

`tests/data` has a data directory of each release, which `frozen_directory.py` has written. The second direction is not
tested with the code of old releases; instead, the tests require that this version writes the same formats.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from struct import unpack_from
from typing import Any

import pytest
from broker_process import BrokerProcess
from foreign_clients import eventually
from frozen_directory import (
    COMMITTED,
    DIRECTORY,
    EXPECTED,
    IDEMPOTENT_BATCHES,
    IN_TRANSACTIONS,
    OPEN,
    PLAIN,
    SETTINGS,
    idempotent_batch,
    inspect,
    make,
    produce,
)
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset, new_producer_id

ARCHIVES = sorted(DIRECTORY.glob("*.tar.xz"))
FIRST_LINE = "first line"
FORMS: dict[str, Callable[[Path], Any]] = {
    "meta.properties": lambda path: [line for line in path.read_text().splitlines() if line.startswith("version")],
    "metadata.db": lambda path: _forms_of_store(path),
    ".snapshot": lambda path: unpack_from(">h", path.read_bytes()),
    ".txnindex": lambda path: unpack_from(">h", path.read_bytes()),
    ".window": lambda path: unpack_from(">h", path.read_bytes()),
    "checkpoint": lambda path: path.read_text().splitlines()[0],
}
"""Maps a suffix of file names to the function that reads the format version of such a file."""
PASSED_OVER = ("oncelog.closed-logs", "oncelog.identity", "metadata-copy.jsonl", "metadata-copy.previous.jsonl")
"""Files that the last release did not write; that release neither reads nor removes them."""
NODES_PASSED_OVER = ("/oncelog/store_id",)
COLUMNS_PASSED_OVER = ", base TEXT, previous_base TEXT"
"""Columns of the table last_write, as SQL; the last release neither reads nor changes them."""


def embedded(data: Path) -> BrokerProcess:
    broker = BrokerProcess(data, SETTINGS)
    broker.settings.pop("zookeeper.connect", None)  # other tests of this process may have set this variable
    return broker


def unpack(archive: Path, directory: Path) -> dict[str, Any]:
    """Unpack the archive; return the description that the broker which wrote the data has stored."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None  # since 3.11.4
        opened.extractall(directory)
    expected: dict[str, Any] = json.loads((directory / EXPECTED).read_text())
    return expected


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_directory_of_another_version_is_opened_and_nothing_is_forgotten(archive: Path, tmp_path: Path) -> None:
    expected = unpack(archive, tmp_path)
    with embedded(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert inspect(client) == expected["found"]
        # Check the producers: the broker knows their last batches, and accepts the next sequence.
        producer_id, epoch = expected["idempotent"]
        before = client.list_offset(PLAIN, 0)[0]
        sent_again = produce(client, PLAIN, idempotent_batch(producer_id, epoch, IDEMPOTENT_BATCHES - 1))
        assert sent_again == before - 1
        assert produce(client, PLAIN, idempotent_batch(producer_id, epoch, IDEMPOTENT_BATCHES)) == before
        # Check the producer ids: no id is assigned twice.
        assert new_producer_id(client).producer_id > expected["highest"]
        # Check the transactions: a new producer aborts the open transaction of its predecessor, and another transaction
        # continues.
        assert last_stable_offset(client, IN_TRANSACTIONS) < client.list_offset(IN_TRANSACTIONS, 0)[0]
        successor = RawTransactions(client, OPEN, is_v2=True)
        successor.take_over()
        eventually(lambda: is_stable(client, IN_TRANSACTIONS), "the open transaction is aborted")
        aborted = [producer for producer, _ in inspect(client)[IN_TRANSACTIONS]["aborted"]]
        assert successor.producer.producer_id in aborted
        other = RawTransactions(client, COMMITTED, is_v2=True)
        other.take_over()
        other.write(IN_TRANSACTIONS)
        assert other.end() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture(scope="module")
def written_now(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a data directory with the formats that this version writes."""
    directory = tmp_path_factory.mktemp("now")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerProcess, "new_chroot", None)
        make(directory / "now.tar.xz", is_killed=False)
    unpack(directory / "now.tar.xz", directory)
    yield directory / "data"


def test_the_last_release_reads_directories_of_this_version(written_now: Path, tmp_path: Path) -> None:
    """A release may write a new format only if the previous release could already read this format:
    docs/design/compatibility.md.
    """
    newest = max(path for path in ARCHIVES if path.name.endswith("-clean.tar.xz"))
    unpack(newest, tmp_path)
    assert forms(written_now) == forms(tmp_path / "data")


def forms(data: Path) -> dict[str, Any]:
    """Return the kinds of files in a data directory, with the versions of their formats."""
    found: dict[str, Any] = {}
    for path in sorted(data.rglob("*")):
        if path.is_dir() or path.name.endswith(".deleted") or path.name in PASSED_OVER:
            continue
        kind = path.suffix if path.name[0].isdigit() else path.name
        read = next((read for end, read in FORMS.items() if path.name.endswith(end)), None)
        version = None if read is None else read(path)
        assert found.setdefault(kind, version) == version, path
    return found


def _forms_of_store(path: Path) -> Any:
    """Return the schema version and the tables of the SQLite file, and the version of the JSON for each kind of
    node.
    """
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = connection.execute("SELECT sql FROM sqlite_master ORDER BY sql").fetchall()
        tables = [(sql.replace(COLUMNS_PASSED_OVER, ""),) for (sql,) in tables if sql is not None]
        nodes = connection.execute("SELECT path, data FROM node").fetchall()
    versions = {}
    for node, content in nodes:
        if node in NODES_PASSED_OVER:
            continue
        document = json.loads(content) if content.startswith(b"{") else {}
        kind = "/".join(part for part in node.split("/") if part.isalpha() and part not in ("plain", "compacted"))
        if "version" in document:
            versions[kind] = document["version"]
    return version, tables, versions


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("meta.properties", lambda path: path.write_text("version=2\nnode.id=1\n"), "version 2 is not supported"),
        ("metadata.db", lambda path: _set_format(path, 2), "its format version is 2, this release supports 1"),
    ],
)
def test_a_directory_of_a_later_form_is_refused_and_left_as_it_is(
    tmp_path: Path, name: str, damage: Callable[[Path], Any], words: str
) -> None:
    unpack(ARCHIVES[0], tmp_path)
    damage(tmp_path / "data" / name)
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    broker = embedded(tmp_path / "data")
    with pytest.raises(AssertionError, match="the broker ended"):
        broker.start()
    assert broker.wait_ended() == 1
    assert words in broker.log.read_text()
    for path, content in before.items():
        if path.name != ".lock":
            assert path.read_bytes() == content, path


def _set_format(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
