"""Implements `make dist`: builds an sdist and a wheel in dist/, installs each in an empty environment, and tries the
README there.

The README's shell commands and the programs of the guide to brokers run unchanged, except for the address. pytest runs
the README's test, and the console's pages are requested. If a copied example does not work with the built package, the
exit code is 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import urllib.request
import venv
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guides" / "broker.md"
CONSTRAINTS = ROOT / "constraints.txt"
ADDRESS_IN_PAGES = "127.0.0.1:9092"
EXTRAS = "broker,console,otel"
TO_TRY_IT = ("pytest", "confluent-kafka")
"""The packages that the programs of the README and the guide need in addition to oncelog."""
PATIENCE_SECONDS = 300.0
EXPECTED = (
    "oncelog_testing/plugin.py",
    "oncelog_broker/py.typed",
    "oncelog/py.typed",
    "licenses/LICENSE",
    "oncelog_console/templates/base.html",
    "oncelog_console/static/console.css",
    "oncelog_console/static/live.js",
    "scripts/oncelog-spark-python",
)


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], environment=environment)
    files = sorted(DIST.iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    for file in files:
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB", flush=True)
        if file.suffix == ".whl":
            check_content(file)
        with tempfile.TemporaryDirectory() as directory:
            try_out(file, Path(directory))
    return 0


def check_content(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    missing = [wanted for wanted in EXPECTED if not any(name.endswith(wanted) for name in names)]
    others = sorted({name.split("/")[0] for name in names if not name.startswith(("oncelog", "pyspark_oncelog"))})
    assert not missing, f"the wheel has no {', '.join(missing)}"
    assert not others, f"the wheel has {', '.join(others)}"


def try_out(file: Path, directory: Path) -> None:
    home = directory / "environment"
    venv.create(home, with_pip=True)
    binaries = home / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "-c", str(CONSTRAINTS), f"{file}[{EXTRAS}]", *TO_TRY_IT])
    run([*pip, "check"])
    project = directory / "project"
    project.mkdir()
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try_commands(project, environment)
    (project / "test_readme.py").write_text(the_block_with("def test_"))
    run(["pytest", "-q", "test_readme.py"], environment=environment, directory=project)


def try_commands(project: Path, environment: Mapping[str, str]) -> None:
    """Run the README's commands and the guide's programs against a broker that is started as by `make run`."""
    start = ["oncelog", "serve", "--data", "data", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--stop-at-eof"]
    with subprocess.Popen(
        start, env=environment, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        found = re.search(r"ready on (\S+)", broker.stdout.readline())
        assert found, "the broker does not start"
        with_address = {**environment, "ONCELOG_BOOTSTRAP_SERVER": found[1]}
        serve, produce, consume = the_block_with("oncelog produce greetings").splitlines()
        assert serve.startswith("oncelog serve")
        run(["sh", "-c", produce], environment=with_address, directory=project)
        consumed = run(["sh", "-c", f"{consume} | head -n 1"], environment=with_address, directory=project)
        assert "hello" in consumed, f"{consume!r} shows {consumed!r}"
        for mark in ("hello from librdkafka", "async def main():"):
            program = the_block_with(mark, GUIDE)
            assert ADDRESS_IN_PAGES in program, f"the program with {mark!r} names no {ADDRESS_IN_PAGES}"
            run(
                ["python", "-c", program.replace(ADDRESS_IN_PAGES, found[1])],
                environment=environment,
                directory=project,
            )
        try_console(project, with_address)
        traced = "import oncelog; oncelog.Producer('h:1', tracing=True)"
        run(["python", "-W", "error", "-c", traced], environment=environment, directory=project)
        broker.stdin.close()
        assert broker.wait(PATIENCE_SECONDS) == 0


def try_console(project: Path, environment: Mapping[str, str]) -> None:
    """Check that the installed package contains the console's pages and their styles."""
    start = ["oncelog", "console", "--listen", "127.0.0.1:0"]
    print("$", " ".join(start), flush=True)
    with subprocess.Popen(start, env=environment, cwd=project, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        try:
            found = re.search(r"is on (\S+)", console.stdout.readline())
            assert found, "the console does not start"
            for path, text in (("/topics", "greetings"), ("/static/console.css", "{"), ("/static/live.js", "(")):
                with urllib.request.urlopen(found[1].rstrip("/") + path, timeout=PATIENCE_SECONDS) as answer:
                    assert text in answer.read().decode(), f"the console's {path} does not contain {text!r}"
        finally:
            console.terminate()


def the_block_with(text: str, page: Path = README) -> str:
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [each for each in blocks if text in each]
    return textwrap.dedent(block)


def run(command: list[str], *, environment: Mapping[str, str] | None = None, directory: Path = ROOT) -> str:
    """Run a command, and return its standard output. If the command fails, this program exits."""
    print("$", " ".join(command).splitlines()[0][:200], flush=True)
    done = subprocess.run(
        command, env=environment, cwd=directory, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS
    )
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
