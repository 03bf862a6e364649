"""The classes that `message` and `struct` create, without their encoding."""

from __future__ import annotations

import pytest

from oncelog_protocol import schema as s


@s.struct
class Part:
    index: int = s.int32()
    name: str = s.string(default="x")


@s.struct
class Other:
    index: int = s.int32()
    name: str = s.string(default="x")


def test_messages_of_one_class_with_equal_fields_are_equal():
    assert Part(index=1) == Part(index=1)
    assert Part(index=1) != Part(index=2)
    assert Part(index=1) != Other(index=1)
    assert Part(index=1) != (1, "x")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Part(index=1))


def test_messages_are_shown_with_their_fields():
    assert repr([Part(index=1)]) == "[Part(index=1, name='x')]"
