"""docs/reference/tools.md: what Apache Kafka's own command line tools do with our brokers.

The list is `tests/interop/tools.toml`, which `make interop` runs command by command against three brokers.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from docs_site.reference.markdown import cell, code, table

LIST: Final = Path(__file__).parents[2] / "tests" / "interop" / "tools.toml"
INTRODUCTION: Final = """\
The command line tools of Apache Kafka {release} work with oncelog unchanged. `make interop` runs each of these
{count} commands, in this order, against three brokers, and fails if the outcome of a command differs from this table.
`{{brokers}}` means `--bootstrap-server` with the addresses of the three brokers.

The outcome *ends with* means that the tool, or the broker, refuses the command with these words. *Not served* means
that oncelog does not have the feature: the tool says so, and nothing changes.
"""


def document() -> str:
    """The page."""
    listed = tomllib.loads(LIST.read_text())
    commands: list[dict[str, Any]] = listed["commands"]
    rows = [[code(each["tool"]), code(each["arguments"]), _outcome(each)] for each in commands]
    return "\n".join(
        [
            "# Kafka's command line tools\n",
            INTRODUCTION.format(release=listed["release"], count=len(commands)),
            table(["Tool", "Command", "Outcome"], rows),
        ]
    )


def _outcome(command: dict[str, Any]) -> str:
    because = f": {cell(command['because'])}" if "because" in command else ""
    if command.get("outcome") == "refused":
        return f"Not served{because}"
    if command.get("code", 0):
        return f"Ends with {code(command['says'])}"
    said = "".join(f", says {code(' '.join(command[key].split()))}" for key in ("says", "also") if command.get(key))
    if "never" in command:
        said += f", says nothing of {code(command['never'])}"
    return f"Works{said}{because}"
