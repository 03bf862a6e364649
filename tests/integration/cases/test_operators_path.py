"""Follows docs/guides/watching.md: a broker dies, alerts fire in a real Prometheus, and the broker is
decommissioned.
"""

from __future__ import annotations

import faulthandler
import json
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from foreign_clients import eventually
from test_operations_guide import Operator
from tests.support.page_blocks import Block, blocks
from tests.support.prometheus import ROOT, RULES, needed

from oncelog_broker.local_cluster.ports import LOOPBACK, own_ports

PAGE = ROOT / "docs" / "guides" / "watching.md"
FOR_SECONDS = re.compile(r"for: \w+")
START_SECONDS = 60.0
ALERT_SECONDS = 100.0
LEAST_FREE_SHARE = 0.12
"""The smallest free share of the disk with which the doctor does not report a full disk."""


class Watcher(Operator):
    """An operator with a Prometheus, at ports that belong to this test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._http_ports = own_ports(3)
        (self._own_port,) = own_ports(1)
        self.prometheus = f"http://{LOOPBACK}:{self._own_port.number}"

    def runs(self, commands: str, code: int = 0) -> None:
        super().runs(commands.replace("9404", str(self._http_ports[0].number)), code)

    @contextmanager
    def watching(self, command: str) -> Iterator[None]:
        """Run Prometheus with the broker addresses of this test, and with alerts that wait for only one second."""
        program, flag, config = command.split()
        assert (program, flag, ROOT / config) == ("prometheus", "--config.file", RULES.with_name("prometheus.yaml"))
        text = (ROOT / config).read_text().replace("15s", "1s")
        for number, port in enumerate(self._http_ports):
            text = text.replace(f"127.0.0.1:{9404 + number}", f"{LOOPBACK}:{port.number}")
        (self.directory / "prometheus.yaml").write_text(text)
        (self.directory / "alerts.yaml").write_text(FOR_SECONDS.sub("for: 1s", RULES.read_text()))
        with (self.directory / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [
                    needed("prometheus"),
                    f"--config.file={self.directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.directory / 'prometheus-data'}",
                    f"--web.listen-address={LOOPBACK}:{self._own_port.number}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def firing(self) -> set[str]:
        """Return the firing alerts; none while Prometheus starts."""
        try:
            with urllib.request.urlopen(f"{self.prometheus}/api/v1/alerts", timeout=10) as answer:
                alerts = json.loads(answer.read())["data"]["alerts"]
        except (urllib.error.URLError, ConnectionError):
            return set()
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def targets_up(self) -> int:
        url = f"{self.prometheus}/api/v1/query?query=sum(up)"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.loads(answer.read())["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return 0
        return int(found[0]["value"][1]) if found else 0

    def sees(self, title: str, text: str) -> None:
        assert text.strip() == "curl -s http://127.0.0.1:9090/api/v1/alerts"
        down, refused = "OncelogBrokerDown", "OncelogUnderMinIsr"
        if title == "the alerts fire":
            eventually(lambda: {down, refused} <= self.firing(), "both alerts fire", ALERT_SECONDS)
        else:
            assert title == "one alert is over"
            eventually(lambda: self.firing() & {down, refused} == {down}, "acks=all is taken again", ALERT_SECONDS)


def steps() -> list[Block]:
    return blocks(PAGE.read_text().partition("## Try it: a broker dies")[2])


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    # no timeout for the entire test, because every wait in it has its own timeout
    faulthandler.cancel_dump_traceback_later()
    needed("prometheus")
    room = shutil.disk_usage(tmp_path)
    if room.free < LEAST_FREE_SHARE * room.total:
        pytest.skip("the disk is almost full, which the doctor would find")
    somebody = Watcher(tmp_path)
    yield somebody
    somebody.goes()


@pytest.mark.timeout(400)
def test_a_dead_broker_raises_alerts_and_is_let_go_as_the_page_says(watcher: Watcher) -> None:
    todo = steps()
    start = next(block for block in todo if block.title == "Prometheus")
    watcher.does(todo[0])
    with watcher.watching(start.text):
        eventually(lambda: watcher.targets_up() == 3, "Prometheus reads all brokers", START_SECONDS)
        watcher.runs("oncelog doctor")
        for block in todo[2:]:
            if block.title in ("the alerts fire", "one alert is over"):
                watcher.sees(block.title, block.text)
            else:
                watcher.does(block)
            if block.title == "it fails":
                assert "broker 3" in watcher.shown
                assert "decommission 3" in watcher.shown or "advertises" in watcher.shown
