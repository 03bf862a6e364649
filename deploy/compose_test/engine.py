"""Runs containers: a Docker daemon, or Podman, whose API docker-compose accepts.

Podman keeps its images and containers in a directory of the run, so that nothing remains. Podman runs as root, and is
installed if apt-get is available.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "docker-compose": "docker-compose",
    "mmdebstrap": "mmdebstrap",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
}
"""Maps each required program or file to the Debian package that contains it."""
LIMITS: Final = (("nofile", resource.RLIMIT_NOFILE, 1_048_576), ("nproc", resource.RLIMIT_NPROC, 32_768))
"""The limits for containers, lowered to the limits of this process, because Podman fails if its own defaults are
higher.
"""
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
COMMAND_SECONDS: Final = 900.0
"""The limit in seconds for one command; on a slow disk, building an image takes minutes."""


class Unavailable(Exception):
    """No containers can be run here; the message says why."""


@dataclass(frozen=True)
class Engine:
    cli: Sequence[str]
    """The command that is used in place of `docker`."""
    compose: Sequence[str]
    """The command that is used in place of `docker compose`."""
    environment: dict[str, str] = field(default_factory=dict)
    is_podman: bool = False

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of the engine, and return its standard output. Raises CalledProcessError, with standard error
        in its notes.
        """
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if check and done.returncode:
            error = subprocess.CalledProcessError(done.returncode, command)
            error.add_note((done.stderr or done.stdout)[-3000:])
            raise error
        return done.stdout if done.returncode == 0 else ""

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """Run `docker ARGUMENTS`, and return its standard output."""
        return self.run(*self.cli, *arguments, check=check)


@contextmanager
def running_engine(directory: Path) -> Iterator[Engine]:
    """Yield Docker if its daemon responds, and otherwise Podman with its data in `directory`. Raises Unavailable."""
    if _succeeds("docker", "info"):
        yield Engine(["docker"], _docker_compose())
        return
    _install_podman()
    environment = _podman_environment(directory)
    socket = directory / "podman.sock"
    service = subprocess.Popen(
        ["podman", "system", "service", "--time=0", f"unix://{socket}"],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not socket.exists():
            if service.poll() is not None or time.monotonic() > deadline:
                raise Unavailable("podman's API service does not start")
            time.sleep(0.1)
        yield Engine(["podman"], ["docker-compose"], environment, is_podman=True)
    finally:
        service.terminate()
        try:
            service.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def _succeeds(*command: str) -> bool:
    return shutil.which(command[0]) is not None and not subprocess.run(command, capture_output=True).returncode


def _docker_compose() -> list[str]:
    if _succeeds("docker", "compose", "version"):
        return ["docker", "compose"]
    if _succeeds("docker-compose", "version"):
        return ["docker-compose"]
    raise Unavailable("a Docker daemon answers, but docker compose is missing")


def _install_podman() -> None:
    if os.geteuid():
        raise Unavailable("no Docker daemon answers, and only root can run podman here")
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(f"no Docker daemon answers, {', '.join(missing)} are not installed, and apt-get is missing")
    print(f"no Docker daemon answers: installing {' '.join(missing)} by apt-get")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"apt-get {command[0]} failed: {done.stderr[-300:]}")


def _podman_environment(directory: Path) -> dict[str, str]:
    """Return the configuration of Podman. It is chosen to work everywhere: without systemd, with runc, which supports
    both versions of cgroups, and with the storage driver vfs, which works on every file system.
    """
    limits = []
    for name, limit, wanted in LIMITS:
        _, most = resource.getrlimit(limit)
        least = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        limits.append(f'"{name}={least}:{least}"')
    (directory / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n"
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    (directory / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{directory}/run"\ngraphroot = "{directory}/storage"\n'
    )
    return {
        "CONTAINERS_CONF": str(directory / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
        "DOCKER_HOST": f"unix://{directory}/podman.sock",
        # docker-compose 1.29 gives up if stopping takes longer than this; stopping may be slow, because vfs copies the
        # image for each container.
        "COMPOSE_HTTP_TIMEOUT": "300",
    }
