"""The report that `make audit` prints about pip-audit's results: packages that could not be looked up never count as
safe.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GOOD = {"name": "click", "version": "8.2", "vulns": []}
BAD = {"name": "jinja2", "version": "3.0", "vulns": [{"id": "ADV-1", "fix_versions": ["3.1"]}]}
SKIPPED = {"name": "kazoo", "skip_reason": "not found"}


def report(*packages: Any) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ({"pypi": report(GOOD)}, 0, "1 packages looked up, 0 advisories"),
        ({"pypi": report(GOOD, BAD)}, 1, "jinja2 3.0: ADV-1, mended in 3.1"),
        ({"pypi": report(GOOD, SKIPPED), "osv": report(GOOD, GOOD)}, 0, "2 packages looked up"),
        ({"pypi": report(SKIPPED), "osv": report(BAD)}, 1, "knows none of the 1 packages"),
        ({"pypi": report(GOOD, SKIPPED), "osv": ""}, 3, "not looked up: kazoo"),
        ({"pypi": report(GOOD, BAD, SKIPPED), "osv": ""}, 1, "not looked up: kazoo"),
        ({"pypi": report(SKIPPED), "osv": report(SKIPPED)}, 3, "NOTHING was looked up"),
        ({"pypi": "", "osv": "no JSON"}, 3, "cannot be asked: no route to host"),
        ({"pypi": "[]", "osv": "{}"}, 3, "NOTHING was looked up"),
    ],
)
def test_packages_not_looked_up_are_named(answers: dict[str, str], code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    pip_audit = tmp_path / "pip_audit.py"
    pip_audit.write_text(
        "import json, pathlib, sys\n"
        "answers = json.loads((pathlib.Path(__file__).parent / 'answers.json').read_text())\n"
        "service = next(each for each in sys.argv if each.startswith('--vulnerability')).partition('=')[2]\n"
        "print(answers[service])\n"
        "print('no route to host', file=sys.stderr)\n"
    )
    command = [sys.executable, "deploy/audit.py", sys.executable, str(pip_audit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, "")
    assert words in done.stdout


def test_a_missing_pip_audit_is_reported() -> None:
    command = [sys.executable, "deploy/audit.py", "/nonexistent/pip-audit"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "cannot be asked" in done.stdout
    assert "NOTHING was looked up" in done.stdout


def test_every_pinned_package_has_an_exact_version() -> None:
    """If a version were not exact, pip-audit would check another release than the installed one."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, equals, version = line.partition("==")
        assert name and equals and version, line
