"""Spark's Python processes, forked from one that has imported everything: a second of CPU less for each.

Spark starts some twenty of them for a few queries, one that forks others for each kind of work, and most of what they
do is to read their modules. What it starts here, as PYSPARK_PYTHON, is a launcher: it hands its arguments, environment
and streams to a process that forks, ends as what was forked ends, and is that to Spark. Only the imports are there.

    with warm_python() as python:
        os.environ["PYSPARK_PYTHON"] = python

A driver of its own, which a test kills or measures, starts its workers as users do.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

HERE: Final = Path(__file__).parent
IS_POSSIBLE: Final = sys.platform == "linux" and len(sys.executable) < 120 and " " not in sys.executable
"""Elsewhere a process that forks after its imports is not what one may rely on; and a script's first line is short."""
MODULES: Final = (
    "pandas", "pyarrow.parquet", "fastavro",
    "pyspark.worker", "pyspark.sql.worker.commit_data_source_write", "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner", "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.pandas.types", "oncelog.admin", "oncelog_pipeline.values.columns", "dying",
)  # fmt: skip
MESSAGE_BYTES: Final = 128 * 1024
LAUNCHER: Final = """#!{python} -IS
import os, socket, sys

arguments = [os.fsencode(each) for each in sys.argv[1:]]
environment = [name + b"=" + value for name, value in os.environb.items()]
told = b"\\0".join([os.fsencode(os.getcwd()), b"%d" % len(arguments), *arguments, *environment])
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
is_asked = arguments[:1] == [b"-m"] and len(told) <= {most}
if not is_asked or control.connect_ex({address!r}):  # nobody is there
    os.execv({python!r}, [{python!r}, *arguments])
socket.send_fds(control, [told], [0, 1, 2])
os._exit(int(control.recv(16) or 1))
"""


@contextmanager
def warm_python() -> Iterator[str]:
    """What to start in place of Python."""
    if not IS_POSSIBLE:
        yield sys.executable
        return
    with TemporaryDirectory(prefix="warm-") as directory:
        address, launcher = f"{directory}/socket", Path(directory, "python")
        launcher.write_text(LAUNCHER.format(python=sys.executable, address=address, most=MESSAGE_BYTES))
        launcher.chmod(0o700)
        # As Spark starts its workers: the same hash of a key in each of them.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as named:
            named.bind(address)
            named.listen(64)
            command = [sys.executable, __file__, str(named.fileno())]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=[named.fileno()])
        try:
            yield str(launcher)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # which ends it
            process.wait()


# --- The process that forks


def serve(listener: socket.socket) -> None:
    """Fork for whoever asks, until standard input ends."""
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or the first collection of each process would copy all of it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while not (ready := select.select([sys.stdin, listener], [], [])[0]) or sys.stdin not in ready:
        control, _ = listener.accept()
        with control:
            if os.fork() == 0:
                listener.close()
                supervise(control)


def supervise(control: socket.socket) -> None:
    """Fork what is asked for, and tell how it ends; end it where nobody waits for that any more. Returns in no other
    process than the one that was asked for."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    message, streams, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
    if (pid := os.fork()) == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (control, woken, wakes):
            each.close()
        become(message.split(b"\0"), streams)
    for stream in streams:
        os.close(stream)
    if woken not in select.select([control, woken], [], [])[0]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        control.send(b"%d" % (code if code >= 0 else 128 - code))
    os._exit(0)


def become(told: Sequence[bytes], streams: Sequence[int]) -> None:
    """What `python -m` is with these arguments, to its end: raises SystemExit."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory, count, *rest = told
    arguments = [os.fsdecode(each) for each in rest[1 : int(count)]]
    os.chdir(directory)
    os.environ.clear()
    os.environb.update(dict(each.split(b"=", 1) for each in rest[int(count) :]))
    paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:0] = [each for each in paths if each and each not in sys.path]
    sys.argv = arguments
    warnings.filterwarnings("ignore", message=".* found in sys.modules", category=RuntimeWarning)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    serve(socket.socket(fileno=int(sys.argv[1])))
