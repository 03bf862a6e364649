#!/bin/sh
''''exec "${0%/*}/python" -IS "$0" "$@" # '''  # fmt: skip

# A shell runs the line above, which passes this file to the Python in the same directory; to Python that line is a
# string.
"""The Python that Spark starts (PYSPARK_PYTHON): forks from a process that has imported PySpark and oncelog already.

Spark starts a Python process for each streaming query, and for each kind of work of a session; imports take most of the
CPU time of such a process. So the first launcher that a JVM starts launches a *template process*
(`oncelog_pipeline.spark.template_process`), which imports everything once and runs as long as the JVM. This launcher
passes its arguments, environment and standard streams to the template process, which forks. The launcher then waits for
the forked process, and ends with its exit code. Spark sees the launcher's process in place of the forked process. If
the launcher is killed, the forked process ends, too; if the template process is killed, the launcher terminates the
forked process and ends with code 1.

Without a template process (it cannot start, it refuses, another user has bound its address, or the system is not Linux)
the launcher becomes plain Python.

The launcher imports only small modules, because it runs at each start of a process.
"""

import os
import socket
import sys

NAME = "oncelog-spark-python"
TEMPLATE = "oncelog_pipeline.spark.template_process"
MAX_MESSAGE_BYTES = 128 * 1024
BACKLOG = 128
STARTED = b"started"
DEFAULTS = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # These constants equal those of the template process.


def main(arguments: list[str]) -> None:
    python = os.path.join(os.path.dirname(sys.argv[0]), "python")
    if sys.platform == "linux" and arguments[:1] == ["-m"]:
        code = forked(python, arguments)
        if code is not None:
            os._exit(code)
    os.execv(python, [python, *arguments])


def forked(python: str, arguments: list[str]) -> int | None:
    """Return the exit code of the forked process; None if no process was forked."""
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
    """Terminate the process of this pidfd, if it is still running."""
    import signal

    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except OSError:
        pass


def connected(python: str) -> socket.socket | None:
    """Connect to the template process of the JVM that has started this process; None if the address belongs to another
    user.
    """
    jvm = os.getppid()
    address = f"\0{NAME}-{os.getuid()}-{jvm}-{start_time(jvm)}"
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # otherwise a process that listens at this address and never accepts could block Spark for ever
    control.setblocking(False)
    if control.connect_ex(address):
        start_template(python, address, jvm)
        control.connect(address)
    uid = int.from_bytes(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
    control.setblocking(True)
    return control if uid == os.getuid() else None


def start_time(pid: int) -> str:
    """Return the start time of a process, in clock ticks since boot, which distinguishes two processes with the same
    id.
    """
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def start_template(python: str, address: str, jvm: int) -> None:
    """Start the template process, unless another launcher has bound its address and is starting it already."""
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
    """Return the path without PySpark's zip files inside the environment. The environment has the same modules
    installed and compiled, whereas a module from a zip file is compiled again at each import.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(python))) + os.sep
    kept = [each for each in path.split(os.pathsep) if not (each.startswith(here) and in_pyspark(each))]
    return os.pathsep.join(kept)


def in_pyspark(path: str) -> bool:
    library = os.path.join("site-packages", "pyspark", "python", "lib")
    return path.endswith(".zip") and os.path.dirname(path).endswith(library)


if __name__ == "__main__":
    main(sys.argv[1:])
