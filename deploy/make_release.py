"""Implements `make release`: checks, builds and tags the version that pyproject.toml names; then lists the files to
publish.

The program publishes nothing. First, quick checks decide whether a release is possible (`reasons_against`). Then `make
test` and `make dist` run, and the tag is created, with the changelog's section as its message.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NOT_YET: Final = "not on a package index yet"
CHECKS: Final = (["make", "test"], ["make", "dist"])


def main() -> int:
    version = version_of(ROOT)
    if reasons := reasons_against(ROOT, version):
        print(f"no release of {version}:", *(f"- {reason}" for reason in reasons), sep="\n", file=sys.stderr)
        return 1
    commit = git(ROOT, "rev-parse", "HEAD")
    for command in CHECKS:
        print("$", *command, flush=True)
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            print(f"no release of {version}: {' '.join(command)} ended with {code}", file=sys.stderr)
            return 1
    if git(ROOT, "rev-parse", "HEAD") != commit or git(ROOT, "status", "--porcelain"):
        print(f"no release of {version}: the checkout changed while it was tested; run it again", file=sys.stderr)
        return 1
    tag(ROOT, version)
    print(what_to_publish(ROOT, version))
    return 0


def version_of(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def reasons_against(root: Path, version: str) -> list[str]:
    """Return the reasons why this commit cannot become that version, one sentence each; empty if there are none."""
    reasons = []
    if changed := git(root, "status", "--porcelain"):
        reasons.append(f"the checkout has changes that are not committed:\n{changed}")
    if git(root, "tag", "--list", f"v{version}"):
        reasons.append(f"the tag v{version} exists: raise `version` in pyproject.toml")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog(root), re.MULTILINE):
        reasons.append(f'CHANGELOG.md has no heading "## {version} (YEAR-MONTH-DAY)"')
    if NOT_YET in (root / "README.md").read_text():
        reasons.append(f'README.md says that it is "{NOT_YET}"')
    client = (root / "client/oncelog/connection/versions.py").read_text()
    if f'CLIENT_SOFTWARE_VERSION: Final = "{version}"' not in client:
        reasons.append(f"CLIENT_SOFTWARE_VERSION in client/oncelog/connection/versions.py is not {version}")
    return reasons


def tag(root: Path, version: str) -> None:
    """Tag HEAD, with the changelog's section as the message. Raises CalledProcessError if the tag exists."""
    # Git's clean-up would remove headings as comments.
    git(root, "tag", "--annotate", "--cleanup=verbatim", f"v{version}", "--message", notes(root, version))


def notes(root: Path, version: str) -> str:
    """Return the version's section of the changelog, without its heading. Raises ValueError if the changelog has no
    such section.
    """
    found = re.search(rf"^## {re.escape(version)} .*?\n(.*?)(?=^## |\Z)", changelog(root), re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"CHANGELOG.md has no section {version}")
    return f"oncelog {version}\n\n{found[1].strip()}\n"


def changelog(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text()


def what_to_publish(root: Path, version: str) -> str:
    files = sorted(f"dist/{path.name}" for path in (root / "dist").iterdir())
    has_urls = "urls" in tomllib.loads((root / "pyproject.toml").read_text())["project"]
    without_urls = (
        "\n(pyproject.toml has no [project.urls]: its page will link neither to the source nor to the documents.)"
    )
    return f"""
Tagged v{version}; nothing is published yet. `git tag --delete v{version}` takes it back. To publish:

    git push origin v{version}
    .venv/bin/twine upload {" ".join(files)}
    git show v{version}      # the text for the release's page

The site of the documents is built by `make docs`, in build/site.{"" if has_urls else without_urls}"""


def git(root: Path, *arguments: str) -> str:
    """Run a git command, and return its output. Raises CalledProcessError."""
    done = subprocess.run(["git", *arguments], cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
