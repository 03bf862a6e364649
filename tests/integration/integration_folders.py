"""Importing this module lets other code import the modules of clients/, programs/ and cases/ by their own names.

Every program with tests/integration on its path imports this module first: a conftest.py, or the package of a long
program.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = tuple(str(HERE / name) for name in ("clients", "programs", "cases"))

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
