"""Runs the compose test; if containers cannot be run here, the program says why and ends with 0."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

from compose_test.ending import attempt, ended_by_signals, remove
from compose_test.engine import Engine, Unavailable, running_engine
from compose_test.images import provide_images, size_of
from compose_test.stack import PROJECT, Stack
from compose_test.steps import BILLING, BROKERS, FILES, Proof, say, single_broker

PORTS = (9092, 9093, 9094)


def main() -> int:
    """Return the exit code; a signal raises SystemExit."""
    with ended_by_signals():
        directory = Path(tempfile.mkdtemp(prefix="oncelog-compose-"))
        try:
            with running_engine(directory) as engine:
                return run(engine, directory)
        except Unavailable as reason:
            print(f"compose-test skipped: {reason}")
            return 0
        finally:
            remove(directory)


def run(engine: Engine, directory: Path) -> int:
    if taken := [port for port in PORTS if is_taken(port)]:
        print(f"compose-test cannot run: docker-compose.yml publishes port {taken[0]}, which is already in use")
        return 1
    started = time.monotonic()
    names = [f"{PROJECT}_{service}" for service in (*BROKERS, "broker")]
    environment = provide_images(engine, directory, names)
    if engine.is_podman:
        what = f"by Podman, {'with stand-ins for' if environment else 'on'} the official images"
        say(started, f"the brokers' image is built {what}: {size_of(engine, names[0])} MB")
    cluster, single = (Stack(engine, file, environment) for file in FILES)
    try:
        Proof(cluster).run()
        cluster.down(volumes=True)
        single_broker(single)
    except (AssertionError, subprocess.SubprocessError):
        traceback.print_exc()
        for broker in BROKERS:
            print(f"--- {broker}\n{cluster.logs(broker)}")
        return 1
    finally:
        attempt(lambda: engine("rm", "--force", BILLING, check=False))
        attempt(lambda: cluster.down(volumes=True))
        attempt(lambda: single.down(volumes=True))
        if engine.is_podman:
            attempt(lambda: engine("system", "prune", "--all", "--force", "--volumes", check=False))
    print("compose-test: ok")
    return 0


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
