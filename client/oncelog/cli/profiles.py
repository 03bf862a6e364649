"""Profiles of clusters: named connection settings in a file of the user, and the profile that a command uses.

The file is profiles.yaml in ~/.config/oncelog (XDG_CONFIG_HOME, ONCELOG_PROFILES), readable by its owner only:

    current: staging
    profiles:
      staging: {bootstrap_servers: "kafka-1:9092,kafka-2:9092", command_config: /etc/oncelog/client.properties,
                registry: "http://registry:8081"}

The value of a connection setting is taken from the first of these sources that has the setting: an option of the
command, --profile NAME, an environment
variable, the current profile, the default.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

CHOSEN: Final = "oncelog.cli.profiles"
"""The key of the chosen profile in the `meta` of click's context: a pair of the profile and a bool, which is True if
--profile named the profile.
"""
MAX_FILE_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Profile:
    """The connection settings of one cluster; None means that the profile does not have the setting."""

    bootstrap_servers: str
    command_config: str | None = None
    registry: str | None = None


@dataclass(slots=True)
class Profiles:
    """The content of the file. `current` is the profile of commands that name none."""

    current: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """Return the profile with this name. Raises UsageError, which suggests the nearest name."""
        if name not in self.profiles:
            near = get_close_matches(name, self.profiles, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`oncelog profile list` shows all"
            raise click.UsageError(f"there is no profile {name!r}: {hint}")
        return self.profiles[name]


def profiles_path() -> Path:
    """Return the path of the file, which need not exist."""
    if path := os.environ.get("ONCELOG_PROFILES"):
        return Path(path)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "oncelog" / "profiles.yaml"


def read_profiles() -> Profiles:
    """Return the content of the file; empty profiles if there is no file. Raises UsageError for a file that cannot be
    used.
    """
    path = profiles_path()
    if not path.exists():
        return Profiles()
    import yaml

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        return _parsed(yaml.safe_load(path.read_text()))
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise click.UsageError(f"the profiles in {path} cannot be read: {error}") from error


def write_profiles(profiles: Profiles) -> None:
    """Replace the file atomically: a crash leaves either the old file or the new file. Raises OSError."""
    import yaml

    path = profiles_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shown = {
        name: {key: value for key, value in asdict(profile).items() if value is not None}
        for name, profile in sorted(profiles.profiles.items())
    }
    text = yaml.safe_dump({"current": profiles.current, "profiles": shown}, sort_keys=False, allow_unicode=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def choose_profile(context: click.Context, _: click.Parameter, name: str | None) -> None:
    """Handle --profile as a callback of click; click calls this callback before the callbacks of the other options."""
    if name is not None:
        context.meta[CHOSEN] = read_profiles().named(name), True
    elif CHOSEN not in context.meta and profiles_path().exists():
        known = read_profiles()
        if known.current is not None:
            context.meta[CHOSEN] = known.named(known.current), False


def of_profile(context: click.Context, option: str, value: Any, setting: str) -> Any:
    """Return the value of an option. The profile's value is used in two cases: the option was not given at all, or its
    value came from an environment variable and --profile was given.
    """
    profile, is_named = context.meta.get(CHOSEN, (None, False))
    if profile is None:
        return value
    weaker = {ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}
    if is_named:
        weaker.add(ParameterSource.ENVIRONMENT)
    if context.get_parameter_source(option) not in weaker:
        return value
    found = getattr(profile, setting)
    return value if found is None else found


def _parsed(document: Any) -> Profiles:
    """Parse the content of the file. Raises ValueError, TypeError."""
    if document is None:
        return Profiles()
    if not isinstance(document, dict) or not isinstance(document.get("profiles") or {}, dict):
        raise ValueError("it has no `profiles`")
    found = Profiles(document.get("current"))
    for name, settings in (document.get("profiles") or {}).items():
        if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
            raise ValueError(f"the profile {name!r} is not a mapping of names to texts")
        found.profiles[str(name)] = Profile(**settings)
    return found
