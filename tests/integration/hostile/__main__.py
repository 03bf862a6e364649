"""Implements `make hostile`: runs all hostile clients, prints the table, and writes it to the file of --out.

The exit code is 1 if a hostile client harms the broker or the honest client.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from honest_prober import MAX_P99_MS, MAX_WORST_MS

from hostile.clients import CLIENTS
from hostile.run import Measured, run
from hostile.table import page, row
from hostile.verdict import problems

HEAD = f"""# Hostile clients

Written by `make hostile`. Each row is a broker of its own, one hostile client, and an honest client in another process
that sends a small request every 5 ms (ApiVersions, Produce, Fetch, at times 32 KB or a new connection). Its waits are
those that the broker makes: without the time in which the broker's threads or the honest client were ready and had no
processor; the next column has that time in it. The one after is a client of another broker, which is idle: what the
machine alone makes clients wait, and what is wanted counts above that. A request that waits keeps later ones from being
sent; they are counted as if they had been. Wanted: p99 of at most {MAX_P99_MS:.0f} ms, at worst {MAX_WORST_MS:.0f} ms,
memory flat.

"""


@click.command()
@click.option("--only", multiple=True, help="Just the clients with this in their names.")
@click.option("--small", is_flag=True, help="As much of it as `make test` does.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to keep the table.")
def main(only: tuple[str, ...], small: bool, out: Path | None) -> None:
    outcomes: list[Measured] = []
    for client in CLIENTS:
        size = client.small if small else client.size
        if size is None or (only and not any(part in client.name for part in only)):
            continue
        with tempfile.TemporaryDirectory() as directory:
            outcomes.append(run(client, Path(directory), size, beside_idle=True))
        click.echo(" | ".join(row(outcomes[-1])))
    text = HEAD + "\n".join(page(outcomes)) + "\n"
    if out is not None:
        out.write_text(text)
    click.echo(text)
    sys.exit(any(problems(measured) for measured in outcomes))


if __name__ == "__main__":
    main()
