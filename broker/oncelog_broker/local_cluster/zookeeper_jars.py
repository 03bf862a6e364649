"""Finds the jars of a ZooKeeper server, or downloads the jars once for all checkouts of a user.

No PyPI package ships ZooKeeper alone. The jars are searched in this order: ONCELOG_ZOOKEEPER_CLASSPATH; the directory
of an earlier download; an installed pyspark; Debian's ZooKeeper package. If there are no jars, Maven downloads them (7
MB); without Maven, the jars are extracted from pyspark's source archive. Run as a program, this module finds or
downloads the jars and prints the result.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree  # safe, because this module parses only a file of our own package
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from oncelog_broker.runtime.private_files import make_private_directory, opened_privately

CLASSPATH_VARIABLE: Final = "ONCELOG_ZOOKEEPER_CLASSPATH"
POM: Final = Path(__file__).with_name("zookeeper-pom.xml")
DEBIAN_JAR: Final = Path("/usr/share/java/zookeeper.jar")
"""ZooKeeper's jar in Debian's package, whose manifest lists the other needed jars."""
PYSPARK: Final = "pyspark==4.0.1"
"""The release of pyspark to download, which contains ZooKeeper 3.9.3; releases before 4.0 contain ZooKeeper 3.6."""
NETTY: Final = ("buffer", "codec", "common", "handler", "resolver", "transport", "transport-classes-epoll")
"""The parts of Netty that ZooKeeper needs for TLS, in addition to `transport-native-unix-common`, which contains no
native code."""
NEEDED: Final = (
    *("zookeeper", "zookeeper-jute", "metrics-core", "snappy-java", "slf4j-api"),
    *(f"netty-{name}" for name in (*NETTY, "transport-native-unix-common")),
)
"""The names of the jars that a ZooKeeper server needs. Without metrics-core a server ends immediately; without
snappy-java a server runs but never serves, and logs no message."""
MAVEN_SECONDS: Final = 300.0
DOWNLOAD_SECONDS: Final = 1800.0
"""Timeout in seconds for the download of pyspark's archive, 430 MB."""

_COMPLETE: Final = ".complete"
_JAR: Final = re.compile(r"(?P<name>[a-z0-9-]+?)-\d[^/]*\.jar")


class JarsNotFound(Exception):
    """Raised if no jars were found; the message says which sources were tried and what to do."""


class Jars(NamedTuple):
    class_path: str
    """The class path of the jars, in the form that `java -cp` takes."""
    origin: str
    """Where the jars were found, as text for messages."""


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for downloaded jars; each version of `zookeeper-pom.xml` has its own directory."""
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    version = ElementTree.parse(POM).getroot().findtext("{*}version")  # noqa: S314
    return Path(cache) / "oncelog" / f"zookeeper-{version}"


def find_jars(environment: Mapping[str, str] = os.environ) -> Jars | None:
    """Return the jars on this machine; None if there are no jars. Raises JarsNotFound if the environment variable names
    missing files.
    """
    if named := environment.get(CLASSPATH_VARIABLE):
        missing = [entry for entry in named.split(os.pathsep) if not Path(entry.removesuffix("*")).exists()]
        if missing:
            raise JarsNotFound(f"{CLASSPATH_VARIABLE} names {', '.join(missing)}, which does not exist")
        return Jars(named, CLASSPATH_VARIABLE)
    cache = cache_directory(environment)
    if (cache / _COMPLETE).exists():
        return Jars(_class_path(cache), str(cache))
    package = find_spec("pyspark")
    if package is not None and package.origin is not None:
        jars = _needed_in(Path(package.origin).parent / "jars")
        if len(jars) == len(NEEDED):
            return Jars(os.pathsep.join(map(str, jars)), "the package pyspark")
    if DEBIAN_JAR.exists():
        return Jars(str(DEBIAN_JAR), f"Debian's {DEBIAN_JAR}")
    return None


def provide_jars(tell: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> Jars:
    """Find the jars or download them; `tell` is called with a message before a download. Raises JarsNotFound.

    If several processes run simultaneously, only one process downloads the jars.
    """
    found = find_jars(environment)
    if found is not None:
        return found
    cache = cache_directory(environment)
    with _locked(cache.with_name(f"{cache.name}.lock")):
        if not (cache / _COMPLETE).exists():
            _fetch_into(cache, tell, environment)
    return Jars(_class_path(cache), str(cache))


def _fetch_into(cache: Path, tell: Callable[[str], None], environment: Mapping[str, str]) -> None:
    """Download the jars into `cache`. A killed download leaves an incomplete directory, which the next download
    replaces."""
    failures = []
    for fetch in (fetch_by_maven, fetch_by_pip):
        shutil.rmtree(cache, ignore_errors=True)
        make_private_directory(cache)  # readable only by the owner, because Java executes the files in the directory
        try:
            fetch(cache, tell, environment)
        except JarsNotFound as error:
            failures.append(str(error))
            continue
        (cache / _COMPLETE).touch()
        return
    raise JarsNotFound(
        f"no jars of a ZooKeeper server: {'; '.join(failures)}. Set {CLASSPATH_VARIABLE} to the jars of a server, "
        "or install Maven (mvn), the package pyspark 4, or Debian's package zookeeper"
    )


def fetch_by_maven(directory: Path, tell: Callable[[str], None], environment: Mapping[str, str]) -> None:
    """Download the jars with Maven. Raises JarsNotFound."""
    maven = shutil.which("mvn", path=environment.get("PATH"))
    if maven is None:
        raise JarsNotFound("Maven (mvn) is not installed")
    tell(f"fetching the jars of ZooKeeper (7 MB) by Maven into {directory}")
    options = ["--batch-mode", "--quiet", "--file", str(POM), f"-DoutputDirectory={directory}"]
    _run([maven, *options, "dependency:copy-dependencies"], MAVEN_SECONDS, environment)


def fetch_by_pip(directory: Path, tell: Callable[[str], None], environment: Mapping[str, str]) -> None:
    """Download pyspark's source archive with pip and extract the jars. Raises JarsNotFound."""
    tell(f"fetching the jars of ZooKeeper out of {PYSPARK} (430 MB, once) into {directory}")
    with tempfile.TemporaryDirectory(prefix="oncelog-pyspark-", dir=directory.parent) as downloads:
        options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--dest", downloads]
        _run([sys.executable, "-m", "pip", "download", *options, PYSPARK], DOWNLOAD_SECONDS, environment)
        for archive in Path(downloads).iterdir():
            unpack_needed(archive, directory)


def unpack_needed(archive: Path, directory: Path) -> None:
    """Extract the jars of a server from pyspark's source archive (.tar.gz). Raises JarsNotFound if a jar is missing."""
    with tarfile.open(archive) as members:
        for member in members:
            name = Path(member.name).name
            if member.isfile() and _is_needed(name):
                source = members.extractfile(member)
                assert source is not None, "a file"
                with source, (directory / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    found = _needed_in(directory)
    if len(found) != len(NEEDED):
        raise JarsNotFound(
            f"{archive.name} does not contain the jars of a ZooKeeper server, only {[jar.name for jar in found]}"
        )


def _is_needed(name: str) -> bool:
    parts = _JAR.fullmatch(name)
    return parts is not None and parts["name"] in NEEDED


def _needed_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.jar") if _is_needed(path.name))


def _class_path(directory: Path) -> str:
    return os.pathsep.join(str(path) for path in sorted(directory.glob("*.jar")))


def _run(command: list[str], seconds: float, environment: Mapping[str, str]) -> None:
    """Run a command that downloads or extracts jars. Raises JarsNotFound with the end of the command's output if the
    command fails.
    """
    name = Path(command[0]).name
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=dict(environment), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarsNotFound(f"{name}: {error}") from None
    if result.returncode:
        raise JarsNotFound(f"{name} failed: {(result.stderr or result.stdout).strip()[-300:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    make_private_directory(path.parent)
    with opened_privately(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        jars = provide_jars(print)
    except JarsNotFound as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"ZooKeeper: {jars.origin}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
