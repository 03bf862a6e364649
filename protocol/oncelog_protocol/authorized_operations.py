"""Authorized operations in responses: one bit per AclOperation code (KIP-430)."""

from typing import Final

AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
"""The value of the bit field if the operations were not requested, or are unknown."""
