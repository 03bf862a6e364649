"""`make check` starts no ZooKeeper: it skips marked tests, and an unmarked test that needs ZooKeeper fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_run_without_zookeeper_skips_marked_tests_and_fails_unmarked_ones() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not zookeeper"]
    done = subprocess.run(
        [*command, str(ROOT / "tests/data/zookeeper_in_use.py")], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert "1 failed, 1 deselected" in done.stdout, done.stdout
    assert "a test asks for a ZooKeeper and is not marked: @pytest.mark.zookeeper" in done.stdout


def test_the_quick_check_runs_without_zookeeper() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = [part for part in makefile.split("\n\n") if part.startswith("check:")]
    assert '-m "not soak and not zookeeper"' in recipe
    assert "zookeeper" not in recipe.splitlines()[0].partition("##")[0], "it depends on no target that fetches Java"
