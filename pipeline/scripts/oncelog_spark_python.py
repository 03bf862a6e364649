#!/bin/sh
''''exec "${0%/*}/python" -IS "$0" "$@" # '''  # fmt: skip

# A shell runs the line above, which hands this file to the Python beside it; to Python that line is a string.
"""The Python that Spark starts (PYSPARK_PYTHON): forks from a process that has imported PySpark and oncelog already.

Spark starts a Python process for each streaming query, and for each kind of work of a session; most of the CPU time of
such a process goes into imports. So the first launcher that a JVM starts itself starts a *template process*
(`oncelog_pipeline.spark.template_process`), which imports everything once and stays as long as the JVM. This launcher
hands its arguments, environment and standard streams to the template process, which forks; then it waits, and ends as
the forked process ends. To Spark the launcher is that process: whoever kills it ends the forked one, too; and where the
template process is killed, the launcher ends the forked one, and itself with code 1.

Without a template process (it cannot start, it refuses, its address is another user's, this is not Linux) the launcher
becomes plain Python.

It imports only small modules, since it runs at each start of a process.
"""

import os
import socket
import sys

NAME = "oncelog-spark-python"
TEMPLATE = "oncelog_pipeline.spark.template_process"
MAX_MESSAGE_BYTES = 128 * 1024
BACKLOG = 128
STARTED = b"started"
DEFAULTS = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # those of the template process


def main(arguments: list[str]) -> None:
    python = os.path.join(os.path.dirname(sys.argv[0]), "python")
    if sys.platform == "linux" and arguments[:1] == ["-m"]:
        code = forked(python, arguments)
        if code is not None:
            os._exit(code)
    os.execv(python, [python, *arguments])


def forked(python: str, arguments: list[str]) -> int | None:
    """The exit code of the forked process; None if none was forked."""
    try:
        parts = [os.fsencode(os.getcwd()), b"%d" % len(arguments), *map(os.fsencode, arguments)]
        parts += [name + b"=" + value for name, value in os.environb.items()]
        message = b"\0".join(parts)
        if len(message) > MAX_MESSAGE_BYTES:
            return None
        control = connected(python)
        if control is None:
            return None
        socket.send_fds(control, [message], [0, 1, 2])
        told, processes, _, _ = socket.recv_fds(control, 64, 1)
        if told != STARTED:
            return None
    except OSError:
        return None
    try:
        if code := control.recv(64):
            return int(code)
    except OSError:
        pass
    for process in processes:
        terminate(process)
    return 1


def terminate(process: int) -> None:
    """End the process of this pidfd, if it is still running."""
    import signal

    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except OSError:
        pass


def connected(python: str) -> socket.socket | None:
    """Connect to the template process of the JVM that started this process; None if it belongs to another user."""
    jvm = os.getppid()
    address = f"\0{NAME}-{os.getuid()}-{jvm}-{start_time(jvm)}"
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # else a process that listens at this address and never accepts could block Spark for ever
    control.setblocking(False)
    if control.connect_ex(address):
        start_template(python, address, jvm)
        control.connect(address)
    uid = int.from_bytes(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
    control.setblocking(True)
    return control if uid == os.getuid() else None


def start_time(pid: int) -> str:
    """Return the start time of a process, in clock ticks since boot: it tells apart two processes with the same id."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def start_template(python: str, address: str, jvm: int) -> None:
    """Start the template process, unless another launcher has bound its address and so starts it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(address)
    except OSError:
        return
    listener.listen(BACKLOG)
    if os.fork() == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.set_inheritable(listener.fileno(), True)
        path = without_zips(os.environ.get("PYTHONPATH", ""), python)
        environment = {**DEFAULTS, **os.environ, "PYTHONPATH": path}
        os.execve(python, [python, "-m", TEMPLATE, str(listener.fileno()), str(jvm)], environment)
    listener.close()


def without_zips(path: str, python: str) -> str:
    """Return the path without PySpark's zip files inside the environment: the same modules are installed there,
    compiled, while a module from a zip file is compiled at each import."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(python))) + os.sep
    kept = [each for each in path.split(os.pathsep) if not (each.startswith(here) and in_pyspark(each))]
    return os.pathsep.join(kept)


def in_pyspark(path: str) -> bool:
    library = os.path.join("site-packages", "pyspark", "python", "lib")
    return path.endswith(".zip") and os.path.dirname(path).endswith(library)


if __name__ == "__main__":
    main(sys.argv[1:])
