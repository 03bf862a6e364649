"""Resolves references in settings: `${env:NAME}`, `${file:PATH}` and `${file:PATH:KEY}`, as Kafka's config providers
do.

`${file:PATH}` is the content of a file without its final line break, the form in which container platforms mount a
secret. `${file:PATH:KEY}` is the value of a key in a properties file. Unlike in Kafka, references work without the
setting `config.providers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oncelog_broker.config.declared import InvalidConfig

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[a-zA-Z]+):(?P<what>[^}]*)\}")
MAX_FILE_BYTES: Final = 1024 * 1024


def resolved(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` with each reference replaced by its value. Raises InvalidConfig, whose message contains no
    values.
    """

    def value(match: re.Match[str]) -> str:
        provider, what = match["provider"], match["what"]
        if provider == "env":
            if what not in environment:
                raise InvalidConfig(f"{match[0]}: there is no environment variable {what}")
            return environment[what]
        if provider == "file":
            return _from_file(match[0], what)
        raise InvalidConfig(f"{match[0]}: expected ${{env:NAME}}, ${{file:PATH}} or ${{file:PATH:KEY}}")

    return _REFERENCE.sub(value, text) if "${" in text else text


def _from_file(reference: str, what: str) -> str:
    path, colon, key = what.rpartition(":")
    if not colon or os.path.exists(what):
        return _content(reference, what).removesuffix("\n").removesuffix("\r")
    import javaproperties

    values = javaproperties.loads(_content(reference, path))
    if key not in values:
        raise InvalidConfig(f"{reference}: the file has no key {key}")
    return str(values[key])


def _content(reference: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidConfig(f"{reference}: the file cannot be read: {reason}") from None
