"""Reads the memory of a broker process from /proc: the present resident size, and its maximum since the last
reading.
"""

from __future__ import annotations

from pathlib import Path

import pytest

KB_PER_MB = 1024
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")


class BrokerMemory:
    """In MB. The kernel keeps the peak, so a peak between two readings is not missed."""

    def __init__(self, pid: int) -> None:
        self._directory = Path(f"/proc/{pid}")

    def now(self) -> int:
        return self._entry("VmRSS")

    def peak(self) -> int:
        """Return the peak since `forget_peak`, or since the start of the process."""
        return self._entry("VmHWM")

    def forget_peak(self) -> None:
        (self._directory / "clear_refs").write_text("5")

    def _entry(self, name: str) -> int:
        for line in (self._directory / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) // KB_PER_MB
        raise AssertionError(f"no {name} in {self._directory}/status")
