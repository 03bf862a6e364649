"""Finds helm for tests on PATH or in the user's cache; `make helm` builds it into the cache with Go, which takes some
minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelog" / "helm"
MODULE: Final = "helm.sh/helm/v3/cmd/helm@v3.18.4"
BUILD_SECONDS: Final = 1800


def program() -> str | None:
    """Return the path of the program helm on this machine; None if helm is not installed."""
    cached = CACHE / "helm"
    return shutil.which("helm") or (str(cached) if cached.exists() else None)


def needed() -> str:
    """Return the path of helm; skip the test if helm is not installed."""
    found = program()
    if found is None:
        pytest.skip("helm is not here: `make helm` builds it, or install it")
    return found


def build() -> str | None:
    """Build helm into the cache. Returns None after success, or the reason why helm could not be built."""
    go = shutil.which("go")
    if go is None:
        return "there is no Go to build it with; install helm by your package manager"
    CACHE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(CACHE)}
    done = subprocess.run(
        [go, "install", "-trimpath", "-ldflags=-s -w", MODULE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr[-500:].strip()


def main() -> int:
    """Print the path of helm, and build it first if it is missing; return 1 if there is none."""
    problem = None if program() else build()
    found = program()
    print(found or f"no helm: {problem}", file=sys.stdout if found else sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
