"""Controls the containers of a compose file, found by the labels that every compose implementation gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from foreign_clients import eventually

from compose_test.engine import Engine

PROJECT: Final = "oncelog-compose-test"
NETWORK: Final = f"{PROJECT}_default"
WAIT_SECONDS: Final = 180.0


class Stack:
    def __init__(self, engine: Engine, file: Path, environment: dict[str, str]) -> None:
        self.engine = engine
        self._file = file
        engine.environment.update(environment)

    def _compose(self, *arguments: str) -> None:
        self.engine.run(*self.engine.compose, "-p", PROJECT, "-f", str(self._file), *arguments)

    def up(self) -> None:
        """Start all services together. With Podman, the image must have been built before, because Podman's API cannot
        build it on every machine.
        """
        self._compose("up", "--detach", "--no-build" if self.engine.is_podman else "--build")

    def stop_all(self, *services: str) -> None:
        """Stop all services together. Raises AssertionError if one of `services` had to be killed."""
        self._compose("stop")
        self._ended_well(*services)

    def down(self, *, volumes: bool = False) -> None:
        self._compose("down", *(["--volumes"] if volumes else []))

    def container(self, service: str) -> str:
        labels = (f"project={PROJECT}", f"service={service}")
        filters = [argument for label in labels for argument in ("--filter", f"label=com.docker.compose.{label}")]
        return self.engine("ps", "--all", "--quiet", *filters).strip()

    def kill(self, *services: str) -> None:
        self.engine("kill", "--signal", "KILL", *map(self.container, services))

    def stop(self, service: str) -> None:
        """Stop one container. Raises AssertionError if the container had to be killed."""
        self.engine("stop", "--time", "60", self.container(service))
        self._ended_well(service)

    def _ended_well(self, *services: str) -> None:
        for service in services:
            code = self.engine("inspect", "--format", "{{.State.ExitCode}}", self.container(service)).strip()
            assert code == "0", f"{service} ended with {code}"

    def start(self, *services: str) -> None:
        self.engine("start", *map(self.container, services))

    def pause(self, service: str) -> None:
        self.engine("pause", self.container(service))

    def unpause(self, service: str) -> None:
        self.engine("unpause", self.container(service))

    def disconnect(self, service: str) -> None:
        self.engine("network", "disconnect", NETWORK, self.container(service))

    def connect(self, service: str) -> None:
        self.engine("network", "connect", "--alias", service, NETWORK, self.container(service))

    def inside(self, service: str, *command: str) -> str:
        """Return the output of a command in a container; "" if the command fails."""
        return self.engine("exec", self.container(service), *command, check=False)

    def until_in_sync(self, *brokers: str) -> None:
        """Wait until each broker knows that all brokers are in the cluster, and that no replica lags."""
        ping = ("env", "-u", "ONCELOG_NODE_ID", "oncelog", "ping", "--in-sync", "-b", "127.0.0.1:9092")
        for broker in brokers:
            eventually(
                lambda: f"answers: {len(brokers)} brokers" in self.inside(broker, *ping),  # noqa: B023
                f"{broker} sees all in sync",
                WAIT_SECONDS,
            )

    def until_healthy(self, *services: str) -> None:
        """Wait until the containers' own health checks succeed. The checks are run here, because Podman runs them by
        itself only with systemd.
        """
        for service in services:
            container = self.container(service)
            if self.engine.is_podman:
                eventually(lambda: self._passes(container), f"{service} is healthy", WAIT_SECONDS)  # noqa: B023
            else:
                state = ("inspect", "--format", "{{.State.Health.Status}}", container)
                eventually(lambda: self.engine(*state).strip() == "healthy", f"{service} is healthy", WAIT_SECONDS)  # noqa: B023

    def _passes(self, container: str) -> bool:
        self.engine("healthcheck", "run", container, check=False)
        checks = self.engine("inspect", "--format", "{{range .State.Health.Log}}{{.ExitCode}} {{end}}", container)
        return checks.split()[-1:] == ["0"]

    def logs(self, service: str, lines: int = 20) -> str:
        container = self.container(service)
        return self.engine.run("sh", "-c", f"{self.engine.cli[0]} logs --tail {lines} {container} 2>&1", check=False)
