"""Only the listed places may use wall time. Wall time is used only for record timestamps and for comparisons with them
(S86).

A deadline, a delay or an age that only this process knows uses monotonic time (`runtime/clock.py`), because a wall
clock may be set forwards and backwards. Each use of wall time is listed here with its reason, and a new use needs a
reason, too.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLOCKS = frozenset({"now_ms", "time_ns", "localtime", "gmtime", "strftime", "ctime", "utcnow", "fromtimestamp", "now"})
FILE_TIMES = frozenset({"st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns", "modified_ms"})

ALLOWED = {
    # --- the clocks themselves
    "broker/oncelog_broker/runtime/clock.py": (1, "the broker's clock seam"),
    "client/oncelog/clock.py": (1, "the client's wall clock"),
    # --- stamps
    "broker/oncelog_broker/assembly/membership.py": (1, "the timestamp of the broker's registration, for people"),
    "broker/oncelog_broker/controller/elector.py": (1, "the timestamp of the controller's registration, for people"),
    "broker/oncelog_broker/coordinator/runtime.py": (1, "stamps the records of internal topics"),
    "broker/oncelog_broker/log/partition_log.py": (4, "LogAppendTime, markers, and the check of records' timestamps"),
    "broker/oncelog_broker/observability/logs.py": (2, "the time of a log line"),
    "client/oncelog/producer/producer.py": (2, "stamps records"),
    "client/oncelog/consumer/consumer.py": (1, "the begin of an OpenTelemetry span"),
    # --- comparisons with record timestamps, which outlive the process
    "broker/oncelog_broker/coordinator/group/coordinator.py": (1, "stamps commits and groups; retention of offsets"),
    "broker/oncelog_broker/server/lanes/offset_commit.py": (1, "stamps the commits that the lane logs"),
    "broker/oncelog_broker/coordinator/share/share_coordinator.py": (
        2,
        "stamps snapshots; how old a snapshot is, by its stamp",
    ),
    "broker/oncelog_broker/sharing/share_partitions.py": (1, "share.auto.offset.reset by the age of records"),
    "broker/oncelog_broker/coordinator/transaction/coordinator.py": (
        1,
        "stamps transactions, expires idle ids; the age of a transaction when it is loaded (never below 0)",
    ),
    "broker/oncelog_broker/server/transactions/list_transactions.py": (
        1,
        "how old a transaction is, by its start timestamp",
    ),
    "broker/oncelog_broker/metrics/cluster_families.py": (1, "transactions that are silent for long, by their records"),
    "broker/oncelog_broker/web/serving.py": (1, "shown by /health/live, so that clocks can be compared"),
    "broker/oncelog_broker/upkeep/maintenance.py": (2, "retention of records; producers expire by both clocks (S56)"),
    "broker/oncelog_broker/upkeep/cleaning.py": (2, "compaction lag and delete horizons, by timestamps of records"),
    "broker/oncelog_broker/log/log_content.py": (2, "stands in for the timestamp of a segment that has none"),
    "broker/oncelog_broker/log/segments/local_log.py": (2, "stands in for the timestamp of a segment that has none"),
    "broker/oncelog_broker/log/segments/segment.py": (1, "retention of a segment without timestamps, by its file"),
    "broker/oncelog_broker/metadata/membership/incarnation.py": (1, "which of several session traces was written last"),
    "broker/oncelog_broker/metadata/model/metadata_copy.py": (
        1,
        "stamps the copy of the metadata; the newest one is used",
    ),
    "broker/oncelog_broker/starting/data_start.py": (2, "shows when a copy was written"),
    "broker/oncelog_broker/runtime/disk.py": (2, "when a file was last written: see segment.py; stamps of files"),
    "broker/oncelog_broker/server/net/login_gate.py": (1, "the expiry of a token, which its issuer has stamped"),
    "broker/oncelog_broker/security/tls/contexts.py": (1, "whether a key store is another file than before"),
    # --- ages and points in time that people read or write
    "client/oncelog/admin/pending_offsets.py": (1, "how long transactions have been open, by their start timestamps"),
    "client/oncelog/admin/transactions.py": (3, "how long transactions have been open, by their start timestamps"),
    "client/oncelog/cli/broker_http.py": (1, "compared with the clocks of brokers"),
    "client/oncelog/cli/support.py": (3, "says when a support bundle was made"),
    "client/oncelog/cli/consume.py": (1, "`--from` by age"),
    "client/oncelog/cli/explain.py": (1, "shows ages"),
    "client/oncelog/cli/groups.py": (2, "resets offsets by age; shows how long transactions have held offsets"),
    "client/oncelog/cli/offsets.py": (1, "a point in time that somebody has written"),
    "client/oncelog/cli/shares.py": (1, "resets offsets by age"),
    "client/oncelog/cli/top_snapshot.py": (1, "shows ages"),
    "client/oncelog/serialization/avro_json.py": (3, "the types of Avro's dates and times"),
    "client/oncelog/serialization/json_values.py": (3, "the types of decoded dates and times"),
    "client/oncelog/cli/txns.py": (2, "shows ages"),
}


def uses_of_wall_time(path: Path) -> Counter[str]:
    """Count the calls of a wall clock, and the places that pass a wall clock on, but not variables and fields of that
    name.
    """
    found: Counter[str] = Counter()
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "oncelog.clock":
            names.update(alias.asname or alias.name for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            is_clock = node.attr in CLOCKS and owner in {"time", "clock", "_clock", "datetime", "date"}
            is_time = node.attr == "time" and owner == "time"
            if is_clock or is_time or node.attr in FILE_TIMES:
                found[ast.unparse(node)] += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            found[node.func.id] += 1
        elif isinstance(node, ast.ImportFrom) and node.module in {"time", "datetime"}:
            found.update(alias.name for alias in node.names if alias.name in CLOCKS | {"datetime", "date", "time"})
    return found


def modules() -> list[str]:
    packages = ("broker/oncelog_broker", "client/oncelog")
    return [str(path.relative_to(ROOT)) for each in packages for path in sorted((ROOT / each).rglob("*.py"))]


def test_s86_every_use_of_wall_time_has_a_reason() -> None:
    uses = {path: uses_of_wall_time(ROOT / path) for path in modules()}
    found = {path: sum(names.values()) for path, names in uses.items() if names}
    expected = {path: count for path, (count, _) in ALLOWED.items()}
    assert found == expected, {path: dict(uses[path]) for path in found if found[path] != expected.get(path)}


@pytest.mark.parametrize(
    "source",
    [
        "due = self._clock.now_ms() + 5",
        "f = clock.now_ms",
        "import time\nt = time.time()",
        "import time\nt = time.time_ns()",
        "from time import time",
        "from oncelog.clock import now_ms\nt = now_ms()",
        "import datetime\nt = datetime.datetime.now()",
        "t = os.stat('x').st_mtime",
    ],
)
def test_a_new_use_of_wall_time_is_found(source: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(source)
    assert uses_of_wall_time(tmp_path / "module.py")


def test_a_passed_wall_time_is_no_use(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def f(now_ms):\n    return step.now_ms + self.now_ms + now_ms + loop.time()")
    assert not uses_of_wall_time(tmp_path / "module.py")
