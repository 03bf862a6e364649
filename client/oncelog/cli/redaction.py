"""Takes secrets out of text before it goes into a support bundle. Pure.

The brokers hide the values of password keys themselves. Beside them, known secrets are replaced wherever they stand,
and what looks like a secret: passwords and tokens after their names, credentials in addresses, private keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

HIDDEN: Final = "[hidden]"
SHORTEST_SECRET: Final = 4
"""A known secret of fewer characters is replaced only after its name: it may be part of any word."""
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
"""Parts of names of settings whose values are secrets. Each `.` stands for `_` and `-`, too."""

# A log or an answer of a server may hold any text: what stands before the mark of a secret (`=`, `://`) is bounded, so
# that the time is proportional to the text's length.
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
    """Return whether a setting of this name has a secret as its value."""
    return _SECRET_NAME.search(name) is not None


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with HIDDEN in the place of these secrets, and of what looks like one."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _JAAS.sub(rf"\g<start> {HIDDEN};", text)
    for pattern in (_AFTER_NAME, _USER_OPTION, _AUTHORIZATION):
        text = pattern.sub(rf"\g<start>{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, _IN_ADDRESS.sub(rf"\g<start>{HIDDEN}", text))


def redacted_document(value: Any, secrets: Collection[str] = ()) -> Any:
    """Return the document with the same in its texts, keys included; the value of a secret setting is HIDDEN as a
    whole.
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
    """Return the secrets among the settings of a client."""
    return [value for name, value in settings.items() if isinstance(value, str) and is_secret_name(name)]
