"""`make release`, run in a separate checkout, names the obstacles to a release, and creates only a tag."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": '[project]\nname = "oncelog"\nversion = "0.2.0"\n',
    "client/oncelog/connection/versions.py": 'CLIENT_SOFTWARE_VERSION: Final = "0.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- A thing.\n\n## 0.1.0 (2026-11-26)\n",
    "README.md": "pip install oncelog\n",
    ".gitignore": "dist/\nmade\n",
}
MAKE = """#!/bin/sh
echo "$@" >> made
case "$1" in
    dist) mkdir dist && touch dist/oncelog-0.2.0.tar.gz dist/oncelog-0.2.0-py3-none-any.whl ;;
esac
"""


class Checkout:
    """A repository with one commit, and a fake `make` that records its targets."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "checkout"
        self.programs = directory / "programs"
        for name, text in FILES.items():
            self.write(name, text)
        (self.root / "deploy").mkdir()
        shutil.copy(ROOT / "deploy/make_release.py", self.root / "deploy")
        self.make_is(MAKE)
        self.git("init", "--quiet")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def make_is(self, text: str) -> None:
        self.programs.mkdir(exist_ok=True)
        (self.programs / "make").write_text(text)
        (self.programs / "make").chmod(0o755)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "as it is")

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=A Name", "-c", "user.email=name@example.org", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def release(self) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "GIT_COMMITTER_NAME": "A Name",
            "GIT_COMMITTER_EMAIL": "name@example.org",
        }
        command = [sys.executable, "deploy/make_release.py"]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=60)

    @property
    def made(self) -> list[str]:
        file = self.root / "made"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def tags(self) -> list[str]:
        return self.git("tag", "--list").splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_release_is_tested_built_and_tagged(checkout: Checkout) -> None:
    done = checkout.release()
    assert done.returncode == 0, done.stderr
    assert checkout.made == ["test", "dist"]
    assert checkout.tags == ["v0.2.0"]
    assert checkout.git("tag", "--list", "--format=%(contents)", "v0.2.0").strip() == (
        "oncelog 0.2.0\n\n### Added\n\n- A thing."
    )
    assert "twine upload dist/oncelog-0.2.0-py3-none-any.whl dist/oncelog-0.2.0.tar.gz" in done.stdout
    assert "git push origin v0.2.0" in done.stdout
    assert "has no [project.urls]" in done.stdout


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("CHANGELOG.md", "## 0.2.0 (unreleased)\n", 'CHANGELOG.md has no heading "## 0.2.0 (YEAR-MONTH-DAY)"'),
        (
            "README.md",
            "0.2.0 is not on a package index yet.\n",
            'README.md says that it is "not on a package index yet"',
        ),
        ("client/oncelog/connection/versions.py", 'CLIENT_SOFTWARE_VERSION: Final = "0.1.0"\n', "is not 0.2.0"),
    ],
)
def test_a_differing_version_prevents_the_release(checkout: Checkout, file: str, text: str, reason: str) -> None:
    checkout.write(file, text)
    checkout.commit()
    refused(checkout, reason)


def test_uncommitted_changes_prevent_the_release(checkout: Checkout) -> None:
    checkout.write("NEW.md", "new")
    refused(checkout, "?? NEW.md")


def test_a_version_is_released_once(checkout: Checkout) -> None:
    checkout.git("tag", "v0.2.0")
    refused(checkout, "the tag v0.2.0 exists")


def test_a_failing_check_ends_the_release(checkout: Checkout) -> None:
    checkout.make_is("#!/bin/sh\necho $1 >> made\nexit 2\n")
    done = checkout.release()
    assert (done.returncode, checkout.made, checkout.tags) == (1, ["test"], [])
    assert "make test ended with 2" in done.stderr


def test_a_change_during_the_release_is_not_tagged(checkout: Checkout) -> None:
    checkout.make_is(MAKE + "touch changed\n")
    done = checkout.release()
    assert (done.returncode, checkout.tags) == (1, [])
    assert "changed while it was tested" in done.stderr


def refused(checkout: Checkout, reason: str) -> None:
    before = checkout.tags
    done = checkout.release()
    assert done.returncode == 1
    assert reason in done.stderr
    assert (checkout.made, checkout.tags) == ([], before)
