"""One ZooKeeper server for all workers of a test run: the first worker that needs the server starts it, and the server
ends with the run.

The run is identified by the pytest process that is not a worker. A keeper process, which runs this module as a program,
owns the server and waits for the end of the pytest process, so that no server remains when pytest is killed. If the
keeper is killed, its server ends, too.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from tests.support.certificates import WEEK, Certificate

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.ports import LOOPBACK, own_ports
from oncelog_broker.local_cluster.process import LocalProcess, started_at
from oncelog_broker.local_cluster.server_config import Timing
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

ROOT = Path(__file__).parents[3]
SHORT = Timing(tick=250, least_session=500)
"""Sessions may be as short as 500 ms, and end at most 250 ms too late."""
START_SECONDS = 100.0
LOOK_SECONDS = 3600.0


AUTHORITY = "authority.pem"
"""Name of a file in the directory of a server with TLS; it contains the certificate authority that signed the server's
certificate.
"""
KEY_STORE, OTHER_KEY_STORE = "broker.pem", "other.pem"
"""Names of two files in the same directory; they contain certificates, with keys, of the clients CN=broker and
CN=other, which the server accepts.
"""


def shared_address(directory: Path, run: int, *, has_tls: bool = False) -> str:
    """Return `host:port` of the server in `directory`, and start the server if needed; the server ends with the process
    `run`. With TLS, the TLS port follows after a space.

    Raises AssertionError if the server does not start.
    """
    address, log = directory / "address", directory / "keeper.log"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if address.exists():
            return address.read_text()
        command = [sys.executable, "-m", "tests.support.zookeeper.shared_server", str(directory), str(run)]
        command += ["tls"] if has_tls else []
        keeper = LocalProcess.start(command, log, environment={**os.environ, "PYTHONPATH": str(ROOT)})
        deadline = time.monotonic() + START_SECONDS
        while not address.exists():
            assert keeper.is_running, f"no ZooKeeper for the tests: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"ZooKeeper does not start: {log.read_text()[-3000:]}"
            time.sleep(0.05)
        return address.read_text()


def keep(directory: Path, run: LocalProcess, *, has_tls: bool) -> None:
    java, jars = find_java(), provide_jars(print)
    print(f"Java {java.version}: {java.origin}; ZooKeeper: {jars.origin}", flush=True)
    (secure_port,) = own_ports(1)
    settings = tls_settings(directory, secure_port.number) if has_tls else {}
    ensemble = Ensemble(directory, java, jars, timing=SHORT, is_synced=False, dies_with_us=True, settings=settings)
    try:
        ensemble.start()
        unfinished = directory / "address.unfinished"
        with_tls = f" {LOOPBACK}:{secure_port.number}" if has_tls else ""
        unfinished.write_text(ensemble.connect_string + with_tls)
        unfinished.rename(directory / "address")
        while not run.wait(LOOK_SECONDS):
            pass
    finally:
        ensemble.kill()


def tls_settings(directory: Path, port: int) -> dict[str, object]:
    """Return the ZooKeeper server's settings for TLS and for the authentication of clients. Clients need no
    certificate, and authenticate by a certificate (scheme `x509`) or by
    `digest`.
    """
    authority = Certificate.authority("authority of the tests' ZooKeeper")
    (directory / AUTHORITY).write_text(authority.pem)
    for name, store in (("broker", KEY_STORE), ("other", OTHER_KEY_STORE)):
        authority.issue(("CN", name), valid=WEEK).store(directory / store)
    return {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": port,
        "secureClientPortAddress": LOOPBACK,
        "ssl.keyStore.location": authority.issue(("CN", "zookeeper"), valid=WEEK).store(directory / "server.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": directory / AUTHORITY,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "want",
    }


if __name__ == "__main__":
    pid = int(sys.argv[2])
    keep(Path(sys.argv[1]), LocalProcess(pid, started_at(pid) or "ended before"), has_tls=sys.argv[3:] == ["tls"])
