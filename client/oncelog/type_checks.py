"""(pure) The types that options are declared with, at run time: whether a value fits, and how to name what would.

Only plain classes are judged here: bool, int, str, list, tuple and the like. Choices (`Literal`), functions and
protocols have checks with better messages beside their declaration.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

_WORDS: Final = {bool: "True or False", NoneType: "None", str: "a str", Iterable: "a list"}


def members(declared: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type, the type alone."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def fits(value: object, declared: Any) -> bool:
    """Whether `value` has the declared type. True where a part of the type is not judged here. A bool is no int."""
    classes = _classes(declared)
    if classes is None:
        return True
    if isinstance(value, bool):
        return bool in classes or object in classes
    return isinstance(value, classes)


def words(declared: Any) -> str:
    """`True, False or None`, `a str or None`, `a list or a tuple`."""
    classes = _classes(declared) or ()
    if set(classes) == {bool, NoneType}:
        return "True, False or None"
    return " or ".join(_WORDS.get(each, f"a {each.__name__}") for each in classes)


def takes_text(declared: Any) -> bool:
    """Whether text is a value as it stands: the type has str in it, or a choice among texts."""
    return any(each is str or isinstance(each, str) for member in members(declared) for each in _choices(member))


def _choices(member: Any) -> tuple[Any, ...]:
    """The values of a Literal; of any other type, the type alone."""
    return get_args(member) if str(get_origin(member)) == "typing.Literal" else (member,)


def _classes(declared: Any) -> tuple[type, ...] | None:
    """The classes of a union; None where one of its members is no plain class."""
    found = tuple(get_origin(each) or each for each in members(declared))
    return found if all(isinstance(each, type) and not getattr(each, "_is_protocol", False) for each in found) else None
