"""`oncelog completion`: prints the script with which a shell completes the commands and options of `oncelog`."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

VARIABLE: Final = "_ONCELOG_COMPLETE"
"""The environment variable that the script sets to request completions from `oncelog`; click expects this name."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that makes SHELL complete the commands and options of oncelog.

    \b
      bash   eval "$(oncelog completion bash)"       in ~/.bashrc
      zsh    eval "$(oncelog completion zsh)"        in ~/.zshrc, after compinit
      fish   oncelog completion fish > ~/.config/fish/completions/oncelog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    made = kind(click.get_current_context().find_root().command, {}, "oncelog", VARIABLE)
    # Format the template here, because `made.source()` would run the shell to find out its version.
    click.echo(made.source_template % made.source_vars())
