"""docs/reference/python.md: what programs and tests import, by its signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import oncelog
import oncelog.admin
import oncelog.errors
import oncelog.serialization
import oncelog.serialization.errors
import oncelog_testing.plugin
from docs_site.reference.markdown import cell, code, table
from oncelog.admin.acls import AclAdmin
from oncelog.admin.groups import GroupAdmin
from oncelog.admin.transactions import TransactionAdmin
from oncelog.consume_process_produce import consume_process_produce
from oncelog.producer.transaction import Transaction
from oncelog.tracing import Tracing
from oncelog_testing.application import ApplicationHistory
from oncelog_testing.broker import Broker
from oncelog_testing.cluster import Cluster, ClusterFault
from oncelog_testing.control import Fault
from oncelog_testing.history.verdict import Verdict
from oncelog_testing.in_process import InProcessBroker, InProcessCluster

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
OF_FIXTURES: Final = (
    Broker, Fault, Cluster, ClusterFault, InProcessCluster, InProcessBroker, ApplicationHistory, Verdict,
)  # fmt: skip
OURS: Final = ("oncelog", "oncelog_protocol", "oncelog_testing")
"""Packages whose base classes are shown; readers know those of Python."""

INTRODUCTION: Final = """\
This page lists the classes and functions with which a program writes, reads and administrates, and the fixtures that
the pytest plugin provides to tests. Every method that waits is a coroutine. The keyword arguments of `Producer`,
`Consumer` and `Admin` are the [configuration of clients](client-configuration.md); type annotations are complete
(`mypy --strict`).
"""


class Chapter(NamedTuple):
    title: str
    how: str
    """How its members are accessed."""
    members: dict[str, Any]
    """By the names with which they are imported."""


def chapters() -> list[Chapter]:
    clients = ("Admin", "Consumer", "Producer")
    beside = [name for name in oncelog.__all__ if name not in (*clients, "KafkaError", "NewTopic")]
    of_admin = [name for name in oncelog.admin.__all__ if name != "Admin"]
    return [
        Chapter("Clients", "`from oncelog import Admin, Consumer, Producer`", _named(oncelog, clients)),
        Chapter(
            "Read, work, write",
            "`from oncelog.consume_process_produce import consume_process_produce`",
            {"consume_process_produce": consume_process_produce},
        ),
        Chapter(
            "What producers and consumers take and give",
            "`from oncelog import ...`",
            _named(oncelog, beside) | {"Transaction": Transaction},
        ),
        Chapter(
            "Parts of Admin",
            "`admin.groups`, `admin.transactions` and `admin.acls`",
            {"GroupAdmin": GroupAdmin, "TransactionAdmin": TransactionAdmin, "AclAdmin": AclAdmin},
        ),
        Chapter(
            "Serializers",
            "`from oncelog.serialization import ...` (formats with a schema, MessagePack and the registry: the extra"
            " `serializers`)",
            _named(oncelog.serialization, oncelog.serialization.__all__),
        ),
        Chapter("Traces", "`from oncelog.tracing import Tracing` (the extra `otel`)", {"Tracing": Tracing}),
        Chapter("What Admin takes and gives", "`from oncelog.admin import ...`", _named(oncelog.admin, of_admin)),
        Chapter("Errors", "`from oncelog.errors import ...`", _errors()),
        Chapter("Fixtures of pytest", "arguments of a test, `def test(oncelog_broker)`", dict(_fixtures())),
        Chapter(
            "What the fixtures give",
            "`Broker`, `Cluster`, `InProcessCluster` and `ApplicationHistory` are what the fixtures are, the others "
            "what these return",
            {each.__name__: each for each in OF_FIXTURES},
        ),
    ]


def _named(module: ModuleType, names: Iterable[str]) -> dict[str, Any]:
    """The classes among these."""
    return {name: getattr(module, name) for name in names if inspect.isclass(getattr(module, name))}


def _errors() -> dict[str, Any]:
    found = _named(oncelog.errors, oncelog.errors.__all__)
    return {name: error for name, error in found.items() if issubclass(error, BaseException)}


def _fixtures() -> Iterator[tuple[str, Any]]:
    for name, value in vars(oncelog_testing.plugin).items():
        if name.startswith("oncelog_"):
            yield name, inspect.unwrap(value._get_wrapped_function())


def document() -> str:
    """The page."""
    parts = ["# Python API\n", INTRODUCTION]
    for chapter in chapters():
        parts.append(f"## {chapter.title}\n\n{chapter.how}.\n")
        if chapter.title == "Errors":
            parts.append(f"{inspect.getdoc(oncelog.errors)}\n")
        parts += [_shown(name, member) for name, member in chapter.members.items()]
    return "\n".join(parts)


def _shown(name: str, member: Any) -> str:
    declared = _declaration(member)
    if isinstance(declared, ast.ClassDef):
        return _shown_class(name, member, declared)
    assert isinstance(declared, (ast.FunctionDef, ast.AsyncFunctionDef))
    return "\n".join([f"### {name}\n", _signature(declared, name), _text(declared)])


def _declaration(member: Any) -> ast.stmt:
    (declared,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(member))).body
    return declared


def _shown_class(name: str, cls: type, declared: ast.ClassDef) -> str:
    parts = [f"### {name}\n"]
    is_error = issubclass(cls, BaseException)
    methods = list(_methods(declared) if is_error else _methods_with_inherited(cls))
    parts += [_signature(each, name) for each in methods if each.name == "__init__" and not is_error]
    parts.append(_text(declared))
    if fields := list(_fields(declared)):
        parts.append(table(["Field", "Type or value", "Meaning"], fields))
    for method in methods:
        if method.name != "__init__":
            parts += [f"#### {name}.{method.name}\n", _signature(method, method.name), _text(method)]
    return "\n".join(parts)


def _methods_with_inherited(cls: type) -> Iterator[Function]:
    """The methods of a class and of its bases in our packages; an override replaces the method of the base."""
    seen = set()
    for each in cls.__mro__:
        if each.__module__.split(".")[0] in OURS:
            declared = _declaration(each)
            assert isinstance(declared, ast.ClassDef)
            for method in _methods(declared):
                if method.name not in seen:
                    seen.add(method.name)
                    yield method


def _methods(declared: ast.ClassDef) -> Iterator[Function]:
    """`__init__` and the public methods."""
    for statement in declared.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
            statement.name == "__init__" or not statement.name.startswith("_")
        ):
            yield statement


def _signature(function: Function, name: str) -> str:
    """The signature for a caller: without `self`."""
    decorators = [ast.unparse(each) for each in function.decorator_list]
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    if "property" in decorators:
        return f"```python\n{name}:{returns.removeprefix(' ->')}\n```\n"
    arguments = function.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    shown = list(_arguments(arguments))
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) > 88:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){returns}"
    awaited = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
    return f"```python\n{awaited}{line}\n```\n"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        yield _argument(argument, default)
    if arguments.vararg:
        yield f"*{_argument(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(argument, default)
    if arguments.kwarg:
        yield f"**{_argument(arguments.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{annotation}"
    return f"{argument.arg}{annotation}{' = ' if annotation else '='}{ast.unparse(default)}"


def _fields(declared: ast.ClassDef) -> Iterator[list[str]]:
    """The fields of data classes, named tuples and enumerations, with the field notes beneath."""
    for statement, following in zip(declared.body, [*declared.body[1:], None], strict=True):
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value))
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.target.id.startswith("_"):
                continue
            yield [code(statement.target.id), code(ast.unparse(statement.annotation)), cell(text)]
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield [code(statement.targets[0].id), code(ast.unparse(statement.value)), cell(text)]


def _text(declared: ast.ClassDef | Function) -> str:
    return f"{ast.get_docstring(declared) or ''}\n"
