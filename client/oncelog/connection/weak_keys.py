"""Messages for keys and certificates that OpenSSL rejects as too weak."""

from __future__ import annotations

import ssl
from typing import Final

_WEAK: Final = {
    "EE_KEY_TOO_SMALL": "the key is too short",
    "CA_KEY_TOO_SMALL": "the key of an authority in its chain is too short",
    "CA_MD_TOO_WEAK": "a certificate of its chain is signed with a digest that is broken, such as SHA-1 or MD5",
    "DH_KEY_TOO_SMALL": "its Diffie-Hellman key is too short",
}
_WHAT_TO_DO: Final = (
    "Make a key of at least 2048 bits (RSA) or 256 bits (EC) and have it signed with SHA-256. Until then, "
    "CipherString = DEFAULT@SECLEVEL=1 in the file that the environment variable OPENSSL_CONF names makes OpenSSL take "
    "it."
)


def weakness(error: Exception) -> str | None:
    """Return the reason and the remedy if `load_cert_chain` raised `error` because of a weak key or certificate;
    otherwise None.
    """
    reason = getattr(error, "reason", None)
    if not isinstance(error, ssl.SSLError) or reason is None:
        return None
    words = _WEAK.get(reason)
    if words is None and reason.endswith(("_TOO_SMALL", "_TOO_WEAK")):
        words = "key or certificate are too weak"
    return None if words is None else f"OpenSSL refuses it, as {words} ({reason}). {_WHAT_TO_DO}"
