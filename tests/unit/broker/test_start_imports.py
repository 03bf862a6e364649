"""The modules that a broker imports before it is ready. Unneeded imports cost some tens of milliseconds per start, and
tools start hundreds of brokers.
"""

import subprocess
import sys

NOT_NEEDED = {
    "argparse",
    "crc32c",
    "email",
    "h11",
    "http",
    "importlib.metadata",
    "javaproperties",
    "kazoo",
    "re2",
    "tomllib",
    "urllib.request",
    "uvicorn",
    "xml",
    "zipfile",
}


def test_a_broker_alone_imports_nothing_that_it_does_not_need():
    look = (
        "import sys, oncelog.cli.main, oncelog_broker.command, oncelog_broker.broker\n"
        f"print(sorted({NOT_NEEDED!r} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
