"""Runs a standalone cluster of Spark: a master, and two workers on hosts of their own, which are different loopback
addresses.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from foreign_clients import eventually
from pyspark.find_spark_home import _find_spark_home
from spark_session import HERE

from oncelog_broker.local_cluster.ports import OwnPort, own_ports
from oncelog_pipeline.spark.java import set_java_home

HOSTS = ("127.0.0.2", "127.0.0.3")
START_SECONDS = 120
WHERE = ("--webui-port", "0", "--cores", "2", "--memory", "600m")
"""Command line options of each worker."""


class StandaloneCluster:
    """`url` is the address of the master. Executors import modules from `python_path`."""

    def __init__(self, directory: Path, python_path: str = str(HERE)) -> None:
        set_java_home()
        self.url = ""
        self._directory = directory
        self._python_path = python_path
        self._own_port: OwnPort | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        (self._own_port,) = own_ports(1)
        port = str(self._own_port.number)
        try:
            log = self._start("127.0.0.1", "Master", "--port", port, "--webui-port", "0")
            eventually(lambda: "I have been elected leader" in log(), "the master starts", START_SECONDS)
            self.url = f"spark://127.0.0.1:{port}"
            where = (*WHERE, "--work-dir", str(self._directory / "work"))
            for each in [self._start(host, "Worker", *where, self.url) for host in HOSTS]:
                eventually(lambda each=each: "Successfully registered with master" in each(), "a worker", START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, host: str, kind: str, *arguments: str) -> Callable[[], str]:
        log = self._directory / f"{kind}-{host}.log"
        environment = os.environ | {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "200m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([self._python_path, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        program = str(Path(_find_spark_home()) / "bin" / "spark-class")
        command = [program, f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", host, *arguments]
        with log.open("wb") as output:
            self._processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))
        return log.read_text

    def kill_worker(self) -> None:
        """Kill the last worker; its executors end with it. The process id is that of the JVM, which has replaced
        `spark-class`.
        """
        self._processes[-1].kill()

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(START_SECONDS)
