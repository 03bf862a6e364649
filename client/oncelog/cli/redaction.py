"""Removes secrets from text before the text is written to a support bundle. Pure.

Brokers themselves hide the values of password keys. In addition, this module replaces known secrets wherever they
occur. The module also replaces text that looks like a secret: passwords and tokens after their names, credentials in
addresses, private keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

HIDDEN: Final = "[hidden]"
SHORTEST_SECRET: Final = 4
"""A known secret with fewer characters is replaced only where it follows the name of its setting, because so short a
text may occur in any word.
"""
SECRET_WORDS: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "jaas",
    "private",
    "keystore.key",
    "digest",
    "passphrase",
    "user.info",
    "api.key",
    "access.key",
    "account.key",
    "auth.key",
)
"""Parts of the names of settings whose values are secrets. In these parts, each `.` also matches `_` and `-`."""

# A log or a response may contain any text, so the patterns limit the number of characters before the sign of a secret
# (`=`, `://`). With this limit, the search time is proportional to the length of the text.
_WORD: Final = f"(?:{'|'.join(SECRET_WORDS).replace('.', '[._-]?')})"
_SECRET_NAME: Final = re.compile(_WORD, re.IGNORECASE)
_JAAS: Final = re.compile(r"(?P<start>LoginModule\s+\w+)\s[^;]*;?", re.IGNORECASE)
_AFTER_NAME: Final = re.compile(
    rf"(?P<start>{_WORD}[\w.-]{{0,100}}[\"']?\s*[=:]\s*)(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;}}\]]+)",
    re.IGNORECASE,
)
_USER_OPTION: Final = re.compile(r"(?P<start>\buser_[\w.@-]{1,100}\s*=\s*)(?:\"(?:[^\"\\]|\\.)*\"|\S+)")
_IN_ADDRESS: Final = re.compile(r"(?P<start>\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]+:)[^\s@/]+(?=@)", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(r"(?P<start>\b(?:Bearer|Basic)\s+)[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,1000}\.[\w-]+\.[\w-]*")
_KEY_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL
)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting with this name is a secret."""
    return _SECRET_NAME.search(name) is not None


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with HIDDEN in the place of these secrets, and of text that looks like a secret."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _JAAS.sub(rf"\g<start> {HIDDEN};", text)
    for pattern in (_AFTER_NAME, _USER_OPTION, _AUTHORIZATION):
        text = pattern.sub(rf"\g<start>{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, _IN_ADDRESS.sub(rf"\g<start>{HIDDEN}", text))


def redacted_document(value: Any, secrets: Collection[str] = ()) -> Any:
    """Return the document with redacted texts and keys; the value of a secret setting, whatever its type, becomes
    HIDDEN.
    """
    if isinstance(value, str):
        return redacted(value, secrets)
    if isinstance(value, Mapping):
        return {
            redacted(str(key), secrets): HIDDEN
            if isinstance(each, str) and is_secret_name(str(key))
            else redacted_document(each, secrets)
            for key, each in value.items()
        }
    return [redacted_document(each, secrets) for each in value] if isinstance(value, list | tuple) else value


def secrets_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the secret values in the settings of a client."""
    return [value for name, value in settings.items() if isinstance(value, str) and is_secret_name(name)]
