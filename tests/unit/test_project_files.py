"""What newcomers and package indexes see first is correct, and the same in each place.

These tests compare README, CONTRIBUTING, the changelog, pyproject.toml, the Makefile and the workflow;
tests/integration/cases/test_readme.py runs the commands of the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.pythons import EXPECTED, OLDEST

from oncelog.connection.versions import CLIENT_SOFTWARE_VERSION

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING, CHANGELOG, TESTING, MAKEFILE = (
    (ROOT / name).read_text()
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/testing-of-oncelog.md", "Makefile")
)
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
JOBS: dict[str, Any] = WORKFLOW["jobs"]
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def commands_of(job: Any) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_readme_begins_with_the_question_the_test_and_the_install_line() -> None:
    order = [
        "## What does your application do when the answer to its commit is lost?",
        "def test_",
        f"{PROJECT['name']} is a ",
        f"pip install '{PROJECT['name']}[",
        "| | oncelog | Apache Kafka",
        "**What it does not do.**",
        "\n## Run a broker",
    ]
    places = [README.index(words) for words in order]
    assert places == sorted(places)
    first_page = README[: places[-1]].splitlines()
    assert len(first_page) < 70
    test = README[places[1] : README.index("```", places[1])].strip().splitlines()
    assert len(test) <= 12


def test_contributing_is_short_and_begins_with_the_quick_check() -> None:
    assert len(CONTRIBUTING.split()) <= 800
    assert re.search(r"^(?:```\n)?(make .*)$", CONTRIBUTING, re.MULTILINE)[1] == "make check"  # type: ignore[index]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/testing-of-oncelog.md"])
def test_there_is_one_figure_for_each_target(page: str) -> None:
    """A page that states the duration of a make target states the same duration as the Makefile."""
    said = dict(
        re.findall(r"^(check|test):.*?## .*?([a-z]+(?: to [a-z]+)? minutes) on two slow cores$", MAKEFILE, re.M)
    )
    assert said.keys() == {"check", "test"}
    for target, minutes in said.items():
        row = re.search(rf"^\| `make {target}` \|.*\| (.+?) \|$", (ROOT / page).read_text(), re.MULTILINE)
        assert row, f"{page} has no row for make {target}"
        assert row[1] == minutes


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/testing-of-oncelog.md", "docs/changing-oncelog.md"]
)
def test_every_target_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert named - TARGETS == set()


@pytest.mark.parametrize(
    ("workers", "shares"), [("auto", "auto auto"), ("logical", "logical logical"), ("6", "4 2"), ("1", "1 1")]
)
def test_workers_may_be_a_number_or_a_word_of_the_test_runner(workers: str, shares: str) -> None:
    rule = "include Makefile\nshow:\n\t@echo $(WAITING_WORKERS) $(COMPUTING_WORKERS)\n"
    command = ["make", "-s", "-f", "-", "show", f"WORKERS={workers}"]
    # As a make of its own, also if another make runs this test.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        command, input=rule, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (shares, "")


def test_a_release_tells_what_was_added_changed_and_fixed_in_few_words() -> None:
    (section,) = re.findall(rf"^## {re.escape(PROJECT['version'])} .*?(?=^## |\Z)", CHANGELOG, re.MULTILINE | re.DOTALL)
    assert len(section.split()) <= 600
    assert set(re.findall(r"^### (.+)$", section, re.MULTILINE)) <= {"Added", "Changed", "Fixed", "Removed", "Security"}


def test_the_client_tells_brokers_the_version_of_the_package() -> None:
    assert PROJECT["version"] == CLIENT_SOFTWARE_VERSION


def test_each_python_is_claimed_where_it_is_shown() -> None:
    """The classifiers, the matrix and `make test-pythons` have the same versions; the linters use the oldest one."""
    claimed = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    oldest = ".".join(map(str, OLDEST))
    assert tuple(claimed) == EXPECTED == tuple(JOBS["pythons"]["strategy"]["matrix"]["python"])
    assert (claimed[0], f">={claimed[0]}", f"py{claimed[0].replace('.', '')}") == (
        oldest,
        PROJECT["requires-python"],
        PYPROJECT["tool"]["ruff"]["target-version"],
    )
    assert f"Python {claimed[0]} to {claimed[-1]}" in README
    looked_for = re.findall(r"python(3\.\d+)", re.search(r"for each in ([^;]+);", MAKEFILE)[1])  # type: ignore[index]
    assert tuple(reversed(looked_for)) == EXPECTED


def test_public_ci_runs_quality_first_and_only_portable_jobs() -> None:
    assert list(JOBS) == ["quality", "pythons", "tests", "docs", "wheels"]
    assert all(job["needs"] == "quality" for name, job in JOBS.items() if name != "quality")
    commands = {name: commands_of(job) for name, job in JOBS.items()}
    assert commands == {
        "quality": ["make check"],
        "pythons": ["make test-pythons ONLY=${{ matrix.python }}"],
        "tests": ["make test"],
        "docs": ["make docs"],
        "wheels": ["make dist"],
    }
    assert {command.split()[1] for each in commands.values() for command in each} <= TARGETS
    assert all(job["timeout-minutes"] for job in JOBS.values())


def test_pre_commit_runs_what_lint_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    programs = [hook["entry"].split()[0] for hook in local["hooks"]]
    assert all(program.replace(".venv/bin", "$(BIN)") in MAKEFILE for program in programs)


def test_the_files_expected_of_maintainers_exist() -> None:
    expected = {
        ".editorconfig",
        ".github/ISSUE_TEMPLATE/bug.yml",
        ".github/pull_request_template.md",
        "CODE_OF_CONDUCT.md",
        "LICENSE",
        "SECURITY.md",
    }
    assert [name for name in sorted(expected) if not (ROOT / name).is_file()] == []
