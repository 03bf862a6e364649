"""Implements `make audit`: looks up the pinned dependencies of constraints.txt in the indexes of advisories that
pip-audit knows.

The exit code is 0 if every package was looked up and has no advisory, 1 if there is an advisory, and 3 if packages
could not be looked up: an audit without data must not look like one without findings. pip-audit itself returns 0 if an
index knows none of the packages, as is the case for mirrors without advisories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

PINNED: Final = Path(__file__).parents[1] / "constraints.txt"
SERVICES: Final = ("pypi", "osv")
"""The indexes to query, by their names in pip-audit; the second index is used if the first has no data."""
TIMEOUT_SECONDS: Final = 900.0
NOTHING_KNOWN, ADVISORIES, NOT_LOOKED_UP = 0, 1, 3


class Found(NamedTuple):
    """The result of querying one index."""

    advisories: list[str]
    """One line for each advisory."""
    skipped: list[str]
    """The packages that could not be looked up."""
    looked_up: int


def found_in(report: Mapping[str, Any]) -> Found:
    """Parse the JSON output of pip-audit."""
    advisories, skipped, looked_up = [], [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped.append(package["name"])
            continue
        looked_up += 1
        for advisory in package["vulns"]:
            fixed = ", ".join(advisory.get("fix_versions", ())) or "no release"
            advisories.append(f"{package['name']} {package['version']}: {advisory['id']}, mended in {fixed}")
    return Found(advisories, skipped, looked_up)


def ask(command: Sequence[str], service: str) -> Found | str:
    """Return the result of the index, or the reason why the index cannot be queried."""
    options = (
        "--no-deps",
        "--disable-pip",
        "--format=json",
        "--progress-spinner=off",
        f"--vulnerability-service={service}",
    )
    try:
        done = subprocess.run(
            [*command, f"--requirement={PINNED}", *options], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
        return found_in(json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    except (ValueError, KeyError, TypeError):
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]


def audit(command: Sequence[str]) -> int:
    """Print the findings, and return the exit code. `command` is the command line that runs pip-audit."""
    best: Found | None = None
    for service in SERVICES:
        found = ask(command, service)
        if isinstance(found, str):
            print(f"audit: the index {service} cannot be asked: {found}")
        elif not found.looked_up:
            print(f"audit: the index {service} knows none of the {len(found.skipped)} packages")
        elif best is None or found.looked_up > best.looked_up:
            best = found
        if best is not None and not best.skipped:
            break
    if best is None:
        print("audit: no index of advisories can be reached from here: NOTHING was looked up. Run it where one can.")
        return NOT_LOOKED_UP
    for line in best.advisories:
        print(line)
    if best.skipped:
        print(f"audit: not looked up: {', '.join(best.skipped)}")
    print(f"audit: {best.looked_up} packages looked up, {len(best.advisories)} advisories")
    return ADVISORIES if best.advisories else NOT_LOOKED_UP if best.skipped else NOTHING_KNOWN


if __name__ == "__main__":
    sys.exit(audit(sys.argv[1:] or [str(Path(sys.executable).parent / "pip-audit")]))
