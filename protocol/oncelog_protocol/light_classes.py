"""`dataclass` and `NamedTuple` for modules that are imported at every start of a broker, where each class counts.

The classes behave like those of `dataclasses` and `typing`, and type checkers see exactly those. Only the time differs
at which the methods are generated: the standard library generates the source text of four to six functions for each
class and compiles it at the import, which takes 0.1 to 0.5 ms for each class. Here, a method is generated when it is
first called. The fields are those of `dataclasses.field`, so `dataclasses.fields`, `replace` and `asdict` work.

Supported are the options of `Options`, fields whose annotations are strings (`from __future__ import annotations`), and
class variables. Every other class is made by the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from threading import RLock
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple

_MISSING: Final[Any] = dataclasses.MISSING
_ABSENT: Final = object()
"""The default of a parameter whose field has a default factory."""
_SPECIAL: Final = ("ClassVar", "typing.ClassVar")
_UNSUPPORTED: Final = ("InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")
_FIELD: Final[Any] = dataclasses._FIELD  # type: ignore[attr-defined]
_GENERATING: Final = RLock()
"""The lock of the thread that generates a method. It is reentrant, because a signal handler or a finalizer may
interrupt that thread and make the first call of another method.
"""
_RESERVED: Final = frozenset(
    ("__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults", "_make", "_replace", "_asdict")
)
"""The attributes that the body of a named tuple may not define, as in `typing.NamedTuple`."""


class Options:
    """The options with which a class was made; named like `dataclasses`' own, which a subclass may look at."""

    __slots__ = ("eq", "frozen", "kw_only", "order", "repr", "slots", "unsafe_hash")
    init = True

    def __init__(self, *, frozen: bool, slots: bool, eq: bool, repr: bool, kw_only: bool) -> None:
        self.frozen, self.slots, self.eq, self.repr, self.kw_only = frozen, slots, eq, repr, kw_only
        self.order = self.unsafe_hash = False


def light_dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
) -> Callable[[Any], Any]:
    """Return the decorator that makes a data class."""
    options = Options(frozen=frozen, slots=slots, eq=eq, repr=repr, kw_only=kw_only)
    return lambda cls: _dataclass(cls, options)


def _dataclass(cls: Any, options: Options) -> Any:
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - strings; `inspect` is slow to import
    if not annotations or any(
        not isinstance(each, str) or each.startswith(_UNSUPPORTED) for each in annotations.values()
    ):
        return dataclasses.dataclass(
            cls, frozen=options.frozen, slots=options.slots, eq=options.eq, repr=options.repr, kw_only=options.kw_only
        )
    own = {
        name: _field(cls, name, annotation, options)
        for name, annotation in annotations.items()
        if not annotation.startswith(_SPECIAL)
    }
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields.update(base.__dict__.get("__dataclass_fields__", {}))
    inherited = set(fields)
    fields.update(own)
    has_hash = "__hash__" in cls.__dict__ and not (cls.__dict__["__hash__"] is None and "__eq__" in cls.__dict__)
    if options.slots:
        cls = _with_slots(cls, own, inherited)
    else:
        for name, field in own.items():
            if field.default is not _MISSING:
                setattr(cls, name, field.default)
            elif name in cls.__dict__:
                delattr(cls, name)
    _add_methods(cls, fields, options, has_hash=has_hash)
    return cls


def _field(cls: Any, name: str, annotation: str, options: Options) -> dataclasses.Field[Any]:
    default = getattr(cls, name, _MISSING)
    if isinstance(default, dataclasses.Field):
        field = default
    else:
        field = dataclasses.field(default=_MISSING if isinstance(default, MemberDescriptorType) else default)
    field.name, field.type = name, annotation
    field._field_type = _FIELD  # type: ignore[attr-defined]
    if field.kw_only is _MISSING:
        field.kw_only = options.kw_only
    if field.default is not _MISSING and field.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(field.default)} for field {name}: use default_factory")
    return field


def _with_slots(cls: Any, own: dict[str, Any], inherited: set[str]) -> Any:
    """Return a copy of the class with slots for its own fields."""
    namespace = dict(cls.__dict__)
    for name in (*own, "__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple(name for name in own if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _add_methods(cls: Any, fields: dict[str, dataclasses.Field[Any]], options: Options, *, has_hash: bool) -> None:
    has = cls.__dict__
    cls.__dataclass_fields__ = fields
    cls.__dataclass_params__ = options
    if "__match_args__" not in has:
        matched = tuple(each.name for each in fields.values() if each.init and not each.kw_only)
        cls.__match_args__ = matched  # type: ignore[misc]
    if "__init__" not in has:
        _generate_at_first_call(cls, "__init__", _init)
    if options.repr and "__repr__" not in has:
        cls.__repr__ = _repr
    if options.eq:
        if "__eq__" not in has:
            _generate_at_first_call(cls, "__eq__", _eq)
        if not has_hash:
            if options.frozen:
                _generate_at_first_call(cls, "__hash__", _hash)
            else:
                cls.__hash__ = None
    if options.frozen:
        _freeze(cls, fields)
        if options.slots and "__getstate__" not in has:
            cls.__getstate__, cls.__setstate__ = _getstate, _setstate


# --- generated methods ------------------------------------------------------------------------------------------------


def _generate_at_first_call(cls: Any, name: str, source: Callable[[Any], tuple[str, dict[str, Any]]]) -> None:
    """Let the first call of a method generate it. `source(cls)` returns its text and its global names.

    Several threads may make the first call at the same time. A stub that was looked up before the first call, for
    example to wrap the method, may be called at any time.
    """
    method: Callable[..., Any] | None = None

    def stub(self: Any, /, *arguments: Any, **options: Any) -> Any:
        nonlocal method
        if method is None:
            with _GENERATING:
                if method is None:  # no other thread has generated it meanwhile
                    text, names = source(cls)
                    names["__name__"] = cls.__module__
                    exec(text, names)  # noqa: S102 - from the names and options of fields, as in `dataclasses`
                    generated = names[name]
                    generated.__qualname__ = f"{cls.__qualname__}.{name}"
                    if cls.__dict__.get(name) is stub:  # otherwise somebody has replaced or wrapped the method
                        setattr(cls, name, generated)
                    method = generated
        return method(self, *arguments, **options)

    stub.__name__, stub.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, stub)


def _init(cls: Any) -> tuple[str, dict[str, Any]]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    positional, keywords, body = ["self"], list[str](), list[str]()
    frozen = cls.__dataclass_params__.frozen
    for field in cls.__dataclass_fields__.values():
        name, value = field.name, field.name
        parameter = name
        if field.default_factory is not _MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()" if not field.init else f"_make_{name}() if {name} is _absent else {name}"
            parameter = f"{name}=_absent"
        elif field.default is not _MISSING:
            names[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
            if not field.init:
                value = f"_default_{name}"
        if field.init:
            (keywords if field.kw_only else positional).append(parameter)
        elif field.default is _MISSING and field.default_factory is _MISSING:
            continue  # `__post_init__` sets it
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    return f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]), names


def _compared(cls: Any, of: str) -> str:
    """Return the text of a tuple of the compared fields of the object that is named `of`."""
    return "(" + "".join(f"{of}.{each.name}, " for each in cls.__dataclass_fields__.values() if each.compare) + ")"


def _eq(cls: Any) -> tuple[str, dict[str, Any]]:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return f"def __eq__(self, other):\n  return {same} if other.__class__ is self.__class__ else NotImplemented", {}


def _hash(cls: Any) -> tuple[str, dict[str, Any]]:
    hashed = [
        each.name for each in cls.__dataclass_fields__.values() if (each.compare if each.hash is None else each.hash)
    ]
    return "def __hash__(self):\n  return hash((" + "".join(f"self.{name}, " for name in hashed) + "))", {}


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _freeze(cls: Any, names: Iterable[str]) -> None:
    def set_attribute(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


# --- named tuples -----------------------------------------------------------------------------------------------------

if not TYPE_CHECKING:
    from collections import _tuplegetter

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, for the options of `light_dataclass`."""
        return light_dataclass(**options) if cls is None else light_dataclass(**options)(cls)

    class _Fields(type):
        """Makes a subclass of `tuple` from the annotations of a class."""

        def __new__(mcls, name, bases, namespace):
            if bases == ():
                return super().__new__(mcls, name, bases, namespace)
            fields = tuple(namespace.get("__annotations__", {}))
            _check(fields, namespace)
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            for number, field in enumerate(fields):
                namespace[field] = _tuplegetter(number, f"Alias for field number {number}")
            namespace.update(__slots__=(), _fields=fields, _field_defaults=defaults, __match_args__=fields)
            made = type(name, (_Tuple, *(base for base in bases if base is not NamedTuple)), namespace)
            _generate_new_at_first_call(made)
            return made

    class NamedTuple(metaclass=_Fields):
        """As `typing.NamedTuple`."""

    def _check(fields, namespace):
        """Refuse the definitions that `typing.NamedTuple` refuses, with its exceptions."""
        for name in namespace:
            if name in _RESERVED:
                raise AttributeError(f"Cannot overwrite NamedTuple attribute {name}")
        with_default = None
        for field in fields:
            if field.startswith("_"):
                raise ValueError(f"Field names cannot start with an underscore: {field!r}")
            if field in namespace:
                with_default = field
            elif with_default is not None:
                raise TypeError(f"Non-default namedtuple field {field} cannot follow default field {with_default}")

    def _generate_new_at_first_call(cls):
        """Let the first call of `__new__` generate it, as `_generate_at_first_call` does for methods."""
        new = None

        def stub(_cls, /, *values, **named):
            nonlocal new
            if new is None:
                with _GENERATING:
                    if new is None:
                        generated = _new(cls)
                        if cls.__dict__["__new__"] is first:
                            cls.__new__ = staticmethod(generated)
                        new = generated
            return new(_cls, *values, **named)

        stub.__name__, stub.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
        first = cls.__new__ = staticmethod(stub)

    def _new(cls):
        names = {"_new": tuple.__new__, "_defaults": cls._field_defaults, "__name__": cls.__module__}
        parameters = (
            f"{field}=_defaults[{field!r}]" if field in cls._field_defaults else field for field in cls._fields
        )
        values_text = "".join(f"{field}, " for field in cls._fields)
        text = f"def __new__(_cls, {', '.join(parameters)}): return _new(_cls, ({values_text}))"
        exec(text, names)  # noqa: S102 - from the names of fields, as in `collections.namedtuple`
        names["__new__"].__qualname__ = f"{cls.__qualname__}.__new__"
        return names["__new__"]

    class _Tuple(tuple):
        """The methods that all named tuples have."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values):
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise TypeError(f"Got unexpected field names: {list(values)!r}")
            return made

        __replace__ = _replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({', '.join(shown)})"

        def __getnewargs__(self):
            return tuple(self)
