"""Light data classes and named tuples behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import pytest

from oncelog_protocol import light_classes

Decorator = Callable[..., Any]


def data_classes(decorate: Decorator) -> list[type[Any]]:
    """Data classes of the shapes that the code has."""

    @decorate
    class Plain:
        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list)
        shared: ClassVar[int] = 7

    @decorate(frozen=True, slots=True)
    class Frozen:
        first: int
        second: str = "two"
        third: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)

        def both(self) -> tuple[int, str]:
            return self.first, self.second

        @property
        def double(self) -> int:
            return 2 * self.first

    @decorate(slots=True)
    class Slotted:
        first: int
        counted: int = dataclasses.field(default=0, init=False)

        def __post_init__(self) -> None:
            self.counted += self.first

    @decorate(frozen=True, slots=True)
    class Derived(Frozen):
        fourth: float = 0.5

    @decorate(frozen=True, eq=False)
    class Identity:
        first: int

    @decorate(slots=True, kw_only=True, eq=False, repr=False)
    class Keywords:
        first: int
        second: str | None = None

        def __repr__(self) -> str:
            return "own"

    @decorate(slots=True)
    class Empty:
        """No field."""

    return [Plain, Frozen, Slotted, Derived, Identity, Keywords, Empty]


LIGHT, STANDARD = data_classes(light_classes.dataclass), data_classes(dataclasses.dataclass)
PAIRS: Final = list(zip(LIGHT, STANDARD, strict=True))


def outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    """Return what `work` returns, or the class of its exception."""
    try:
        found = work()
    except Exception as error:
        return "raised", type(error)
    return "returned", repr(found)


def may_set(value: object, name: str) -> bool:
    """Whether an attribute may be set; the exception of a frozen class with slots is wrong in Python 3.11."""
    try:
        setattr(value, name, 2)
    except (AttributeError, TypeError):
        return False
    return True


@pytest.mark.parametrize(("light", "standard"), PAIRS, ids=[each.__name__ for each in LIGHT])
@pytest.mark.parametrize(
    "use",
    [
        lambda cls: cls(),
        lambda cls: cls(1),
        lambda cls: cls(first=1),
        lambda cls: cls(1, "b", [3]),
        lambda cls: cls(1, second="b"),
        lambda cls: cls(1, fourth=2.5),
        lambda cls: cls(unknown=1),
        lambda cls: cls(1) == cls(1),
        lambda cls: (cls(first=1) == cls(first=2), cls(first=1) != cls(first=1), cls(first=1) == 1),
        lambda cls: hash(cls(1)) == hash(cls(1)),
        lambda cls: {cls(1): 2}[cls(1)],
        lambda cls: cls.__hash__ is None,
        lambda cls: setattr(cls(first=1), "first", 2),
        lambda cls: may_set(cls(first=1), "other"),
        lambda cls: delattr(cls(first=1), "first"),
        lambda cls: dataclasses.replace(cls(first=1), first=3),
        lambda cls: dataclasses.asdict(cls(first=1)),
        lambda cls: [(field.name, field.type, field.default) for field in dataclasses.fields(cls)],
        lambda cls: cls.__match_args__,
        lambda cls: getattr(cls, "__slots__", None),
        lambda cls: hasattr(cls(first=1), "__dict__"),
        lambda cls: copy.copy(cls(first=1)),
        lambda cls: copy.deepcopy(cls(first=1)),
        lambda cls: cls(first=1).both(),
        lambda cls: cls(first=4).double,
        lambda cls: cls.shared,
        lambda cls: dataclasses.is_dataclass(cls),
        lambda cls: cls.__dataclass_params__.frozen,
        lambda cls: cls.__qualname__,
    ],
)
def test_a_light_data_class_is_like_a_standard_one(
    light: type[Any], standard: type[Any], use: Callable[[Any], Any]
) -> None:
    for _ in range(2):  # before and after the methods are generated
        assert outcome(lambda: use(light)) == outcome(lambda: use(standard))


def test_the_methods_are_generated_at_their_first_call() -> None:
    def text_of(cls: type[Any], name: str) -> str:
        return cls.__dict__[name].__code__.co_filename  # type: ignore[no-any-return]

    (frozen,) = [cls for cls in data_classes(light_classes.dataclass) if cls.__name__ == "Frozen"]
    generic = text_of(frozen, "__init__")
    assert generic == light_classes.__file__
    value = frozen(1)
    assert text_of(frozen, "__init__") == "<string>"
    assert text_of(frozen, "__hash__") == text_of(frozen, "__eq__") == generic
    assert hash(value) == hash(frozen(1))
    assert value == frozen(1)
    assert text_of(frozen, "__hash__") == text_of(frozen, "__eq__") == "<string>"


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @light_classes.dataclass
        class Wrong:
            first: list[int] = []  # noqa: RUF012


@light_classes.dataclass(frozen=True, slots=True)
class Sent:
    first: int
    second: str = "two"


class Pair(light_classes.NamedTuple):
    """A pair."""

    first: int
    second: str = "two"

    @property
    def double(self) -> int:
        return 2 * self.first


def test_instances_may_be_pickled() -> None:
    for value in (Sent(1), Pair(1, "b")):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_subclass_of_the_standard_library_may_extend_a_light_class() -> None:
    @dataclasses.dataclass(frozen=True)
    class More(Sent):
        third: int = 3

    assert dataclasses.astuple(More(1)) == (1, "two", 3)


class StandardPair(typing.NamedTuple):
    """A pair."""

    first: int
    second: str = "two"

    @property
    def double(self) -> int:
        return 2 * self.first


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: tuple(cls(1)),
        lambda cls: tuple(cls(second="b", first=2)),
        lambda cls: cls(),
        lambda cls: cls(1, 2, 3),
        lambda cls: cls(1).first,
        lambda cls: cls(1).double,
        lambda cls: tuple(cls(1)._replace(first=5)),
        lambda cls: tuple(cls._make([1, 2])),
        lambda cls: cls._make([1]),
        lambda cls: cls(1)._asdict(),
        lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__, cls.__doc__, cls.__slots__),
        lambda cls: cls(1) == (1, "two"),
        lambda cls: hash(cls(1)) == hash((1, "two")),
        lambda cls: setattr(cls(1), "first", 2),
        lambda cls: setattr(cls(1), "other", 2),
        lambda cls: sorted([cls(2), cls(1)])[0].first,
        lambda cls: tuple(copy.copy(cls(1))),
        lambda cls: isinstance(cls(1), tuple),
        lambda cls: repr(cls(1)).removeprefix("Standard"),
        lambda cls: type(cls) is type,
    ],
)
def test_a_light_named_tuple_is_like_a_standard_one(use: Callable[[Any], Any]) -> None:
    for _ in range(2):
        assert outcome(lambda: use(Pair)) == outcome(lambda: use(StandardPair))


def test_a_subclass_of_a_light_named_tuple_makes_its_own_instances() -> None:
    class Special(Pair):
        __slots__ = ()

    assert type(Special(1)) is Special
    assert type(Pair(1)) is Pair
    match Special(1, "b"):
        case Pair(first, second):
            assert (first, second) == (1, "b")


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def new_classes() -> tuple[type[Any], type[Any]]:
    class Tuple(light_classes.NamedTuple):
        first: int
        second: str = "two"

    @light_classes.dataclass(frozen=True, slots=True)
    class Data:
        first: int
        second: str = "two"

    return Tuple, Data


@pytest.mark.usefixtures("quick_switches")
def test_several_threads_may_use_a_class_first() -> None:
    failures = list[BaseException]()

    def use(cls: type[Any], all_ready: threading.Barrier) -> None:
        all_ready.wait()
        try:
            assert hash(cls(1)) == hash(cls(1, "two"))
            assert cls(1) != cls(2)
        except BaseException as error:
            failures.append(error)

    for _ in range(200):
        all_ready = threading.Barrier(4)
        threads = [threading.Thread(target=use, args=(cls, all_ready)) for cls in new_classes() * 2]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert failures == []


def test_a_second_thread_that_has_begun_the_first_call_uses_the_generated_method() -> None:
    """The order of two racing threads, in one thread: both have looked up the method before it is generated."""
    for cls in new_classes():
        held: Any = cls.__new__ if issubclass(cls, tuple) else cls.__init__
        made = [cls(1), cls(2)]
        if issubclass(cls, tuple):
            assert [held(cls, 1), held(cls, 2)] == made
            assert held is not cls.__new__, "it was generated"
        else:
            value = object.__new__(cls)
            for number in (1, 2):
                held(value, number)
                assert value == made[number - 1]


def test_a_method_may_be_wrapped_before_its_first_call() -> None:
    named, data = new_classes()
    new, init = named.__new__, data.__init__
    named.__new__ = lambda cls, first: new(cls, first + 1)
    data.__init__ = lambda self, first: init(self, first + 1)  # type: ignore[misc]
    for _ in range(2):
        assert tuple(named(1)) == (2, "two")
        assert data(1).first == 2


class WithNew:
    def __new__(cls, first: int) -> WithNew:
        raise NotImplementedError


@pytest.mark.parametrize(
    "body",
    [
        {"__annotations__": {"first": "int"}, "__new__": WithNew.__new__},
        {"__annotations__": {"first": "int"}, "_replace": None},
        {"__annotations__": {"_first": "int"}},
        {"__annotations__": {"first": "int", "second": "int"}, "first": 1},
    ],
    ids=["own __new__", "own _replace", "underscore", "default before none"],
)
def test_a_named_tuple_that_the_standard_library_refuses_is_refused(body: dict[str, Any]) -> None:
    def define(base: Any) -> type[Any]:
        return types.new_class(
            "Refused", (base,), exec_body=lambda namespace: namespace.update({"__module__": __name__, **body})
        )

    refused = outcome(lambda: define(typing.NamedTuple))
    assert refused[0] == "raised"
    assert outcome(lambda: define(light_classes.NamedTuple)) == refused
