"""Runs `systemd-analyze verify` on oncelog.service, if systemd is installed, as a part of `make lint`.

systemd-analyze requires that the program of the unit is installed. The unit is therefore checked with another program
in its place, which always exists.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

UNIT = Path(__file__).with_name("oncelog.service")
PROGRAM = "/opt/oncelog/bin/oncelog"


def main() -> int:
    if shutil.which("systemd-analyze") is None:
        print(f"{UNIT.name} is not verified: systemd-analyze is not installed")
        return 0
    text = UNIT.read_text()
    assert f"ExecStart={PROGRAM} " in text
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, UNIT.name)
        copy.write_text(text.replace(PROGRAM, "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=60
        )
    # Judge by the output lines that name this unit: systemd-analyze exits with 0 although it reports unknown settings,
    # and it also reports problems of other units that oncelog.service needs.
    said = [line for line in (done.stderr + done.stdout).splitlines() if UNIT.name in line]
    if done.returncode or said:
        print("\n".join(said) or done.stderr, file=sys.stderr)
        return 1
    return 0


sys.exit(main())
