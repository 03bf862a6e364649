"""(pure) Checks values against declared types of options at run time, and describes the types.

Only plain classes are checked: bool, int, str, list, tuple and the like. Choices (`Literal`), functions and protocols
are checked in the module that declares the option, with better messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

_WORDS: Final = {bool: "True or False", NoneType: "None", str: "a str", Iterable: "a list"}


def members(declared: Any) -> tuple[Any, ...]:
    """Return the member types of a union; of any other type, the type itself."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def fits(value: object, declared: Any) -> bool:
    """Return whether `value` has the declared type. The result is also True if the type has a part that this module
    does not check. A bool does not count as an int.
    """
    classes = _classes(declared)
    if classes is None:
        return True
    if isinstance(value, bool):
        return bool in classes or object in classes
    return isinstance(value, classes)


def words(declared: Any) -> str:
    """Describe a type in words: `True, False or None`, `a str or None`, `a list or a tuple`."""
    classes = _classes(declared) or ()
    if set(classes) == {bool, NoneType}:
        return "True, False or None"
    return " or ".join(_WORDS.get(each, f"a {each.__name__}") for each in classes)


def takes_text(declared: Any) -> bool:
    """Return whether a text may be a value of this type: the type includes str, or a Literal of texts."""
    return any(each is str or isinstance(each, str) for member in members(declared) for each in _choices(member))


def _choices(member: Any) -> tuple[Any, ...]:
    """Return the values of a Literal; of any other type, the type itself."""
    return get_args(member) if str(get_origin(member)) == "typing.Literal" else (member,)


@cache  # each client checks its options, and a Spark task opens several clients
def _classes(declared: Any) -> tuple[type, ...] | None:
    """Return the classes of a union; None if a member is not a plain class."""
    found = tuple(get_origin(each) or each for each in members(declared))
    return found if all(isinstance(each, type) and not getattr(each, "_is_protocol", False) for each in found) else None
