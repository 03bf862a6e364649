"""Runs a Python file as a program in a separate process, because a test may kill it, or its JVM must find jars when it
starts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

SECONDS = 600


def run_file(path: str, told: Any) -> subprocess.CompletedProcess[str]:
    """Run the Python file with `told`, as JSON, as its argument. Return when the program has ended, or was killed
    together with its workers and its JVM.
    """
    command = [sys.executable, path, json.dumps(told)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err)
