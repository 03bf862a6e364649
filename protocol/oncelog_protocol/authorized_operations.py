"""The field of authorized operations in responses: a bit field with one bit for each AclOperation code (KIP-430)."""

from typing import Final

AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
"""The value of the bit field if the operations were not requested, or are unknown."""
