"""The glossary names only modules that exist, and a grep for a Kafka term finds its module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BROKER: Final = "broker/oncelog_broker"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
ROW: Final = re.compile(r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \| (?P<where>`[^|]+) \|$", re.MULTILINE)
OTHER_ROOTS: Final = ("client/", "protocol/", "tests/", "docs_site/")
MAX_WORDS: Final = 45
"""The greatest number of words in a term's definition, which suffices for two sentences."""

NEWCOMERS_WORDS: Final = {
    "purgatory": "replication/purgatory.py",
    "last stable offset": "replication/replica.py",
    "LSO": "replication/replica.py",
    "high watermark": "replication/high_watermark.py",
    "ISR shrink": "replication/isr_keeper.py",
    "ISR expand": "replication/isr_keeper.py",
    "in-sync replicas": "replication/isr.py",
    "truncate": "replication/truncation.py",
    "leader epoch": "log/leader_epochs.py",
    "back-off": "replication/fetch_plan.py",
    "controlled shutdown": "upkeep/controlled_shutdown.py",
    "log cleaner": "upkeep/cleaning.py",
    "retention": "upkeep/maintenance.py",
    "replication throttle": "replication/throttle.py",
    "token bucket": "security/quotas/bucket.py",
    "quota": "security/quotas/limits.py",
    "authorization": "security/authorizer/__init__.py",
    "audit log": "security/authorizer/audit.py",
    "SCRAM": "security/sasl/scram.py",
    "unclean election": "config/topic_keys.py",
    "stray": "replication/stray_logs.py",
    "round-robin": "runtime/round_robin.py",
    "fetch session": "client/oncelog/consumer/fetch_session.py",
    "rebalance": "client/oncelog/consumer/group/coordinator.py",
    "auto-commit": "client/oncelog/consumer/group/commits.py",
    "log truncation": "client/oncelog/consumer/validation.py",
    "sequence number": "client/oncelog/producer/sequences.py",
    "fences": "client/oncelog/producer/producer.py",
    "prepared transaction": "client/oncelog/prepared_transaction.py",
    "accumulator": "client/oncelog/producer/accumulator.py",
    "delete horizon": "protocol/oncelog_protocol/records/batch.py",
    "fault injection": "fail_control/__init__.py",
    "back-pressure": "server/net/memory_budget.py",
    "reconcile": "controller/reconciler.py",
    "controller": "controller/elector.py",
    "PID block": "metadata/membership/producer_ids.py",
    "generation": "coordinator/group/joining.py",
    "group coordinator": "coordinator/group/coordinator.py",
    "static member": "coordinator/group/joining.py",
    "log recovery": "log/segments/recovery.py",
    "producer snapshot": "log/producers/snapshot.py",
    "rack awareness": "server/records/nearest_replica.py",
    "preferred leader": "controller/balancing.py",
}
"""A newcomer's word -> the module that a grep over names and docstrings must find."""

FIRST_HITS: Final = {
    *("purgatory", "last stable offset", "isr shrink", "fencing", "reconcile", "back-pressure", "token bucket"),
    *("unclean election", "high watermark", "leader epoch", "tombstone", "delete horizon", "fetch session"),
    *("recovery point", "controlled shutdown", "producer epoch", "sequence number", "transaction marker"),
    *("log compaction", "rebalance", "group coordinator", "quota", "throttle", "two-phase commit", "share group"),
}
"""Terms that the docstring of the broker's package must map to a module."""


def path_of(module: str) -> Path:
    return ROOT / (module if module.startswith(OTHER_ROOTS) else f"{BROKER}/{module}")


def rows() -> list[re.Match[str]]:
    return [row for row in ROW.finditer(GLOSSARY.read_text()) if row["term"] != "Term"]


def modules_in(where: str) -> list[str]:
    return re.findall(r"`([^`]+)`", where)


def words_of(path: Path) -> Iterator[str]:
    """Yield the name of a module, and its docstrings and field descriptions, with the texts of configuration keys."""
    yield path.stem.replace("_", " ")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def test_each_term_names_modules_that_exist() -> None:
    missing = [f"{row['term']}: {module}" for row in rows() for module in modules_in(row["where"])
               if not path_of(module).is_file()]  # fmt: skip
    assert missing == []


def test_each_term_is_told_once_and_shortly() -> None:
    terms = [row["term"].lower() for row in rows()]
    assert len(terms) == len(set(terms)) > 50
    assert [row["term"] for row in rows() if len(row["meaning"].split()) > MAX_WORDS] == []


def test_the_terms_are_in_order() -> None:
    for table in GLOSSARY.read_text().split("\n## ")[1:]:
        terms = [row["term"].lower() for row in ROW.finditer(table) if row["term"] != "Term"]
        assert terms == sorted(terms)


def test_a_newcomers_grep_finds_the_module() -> None:
    lost = [
        f"{word}: {module}"
        for word, module in NEWCOMERS_WORDS.items()
        if not any(word.lower() in text.lower() for text in words_of(path_of(module)))
    ]
    assert lost == []


def test_the_broker_says_first_where_terms_are_implemented() -> None:
    """`grep -r WORD broker/` finds the docstring of the package first, and the docstring names the module."""
    docstring = ast.get_docstring(ast.parse((ROOT / BROKER / "__init__.py").read_text())) or ""
    text = docstring.split("The modules that implement Kafka's terms:")[1]
    entries = re.findall(r"^- ([^`]+): ((?:`[\w.]+`,?\s*)+)", text, re.MULTILINE)
    terms = {term.lower() for names, _ in entries for term in re.split(r", | \(|\)", names) if term}
    places = [ROOT / BROKER / name.replace(".", "/") for _, where in entries for name in modules_in(where)]
    assert len(places) > 30
    assert [place for place in places if not place.with_suffix(".py").is_file() and not place.is_dir()] == []
    assert FIRST_HITS - terms == set()
