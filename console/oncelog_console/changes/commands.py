"""(pure) Builds commands to copy into a shell."""

from __future__ import annotations

from oncelog.escaping import shell_quoted


def oncelog(bootstrap: str, command: str, *names: str, **options: object) -> str:
    """Return `oncelog COMMAND --option value NAME...`, quoted for a shell. A value of None or False omits the option,
    True gives the option without a value, and a list repeats the option for each item.
    """
    told = ["oncelog", *command.split(), *_option("--bootstrap-server", bootstrap)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            told.append(option)
        else:
            for each in value if isinstance(value, list) else [value]:
                if each is not None and each is not False:
                    told += _option(option, str(each))
    if any(name.startswith("-") for name in names):
        told.append("--")
    return " ".join(map(shell_quoted, [*told, *names]))


def piped(line: str, command: str) -> str:
    """Return a shell command that runs `command` with `line` on its standard input."""
    return f"printf '%s\\n' {shell_quoted(line)} | {command}"


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]
