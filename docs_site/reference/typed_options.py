"""client/oncelog/typed_options.py: the options of config.py as TypedDicts, for type checkers and editors.

A type checker cannot make the keywords of a function of a dataclass's fields, so this module is generated.
"""

from __future__ import annotations

import ast
import inspect
from typing import Final

import oncelog.config
from oncelog.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig

HEAD: Final = '''\
"""The keyword arguments of Producer, Consumer, ShareConsumer and Admin, for type checkers and editors.

Generated from config.py by `make reference`, and not to be edited. A program that passes options on can name their
type: `def opened(**options: Unpack[ConsumerOptions]) -> Consumer`.
"""

from __future__ import annotations

'''
CLASSES: Final = {
    "ClientOptions": ClientConfig,
    "ProducerOptions": ProducerConfig,
    "ConsumerOptions": ConsumerConfig,
    "ShareConsumerOptions": ShareConsumerConfig,
    "AdminOptions": AdminConfig,
}
POSITIONAL: Final = "bootstrap_servers"


def document() -> str:
    """The module."""
    classes = [_typed_dict(name, config) for name, config in CLASSES.items()]
    body = "\n\n".join(classes)
    used = {each.id for each in ast.walk(ast.parse(body)) if isinstance(each, ast.Name)}
    from_config = sorted((used & vars(oncelog.config).keys()) - {"ssl", "Any"}, key=str.casefold)
    typing = ", ".join(["TYPE_CHECKING", "Any", "TypedDict"] if "Any" in used else ["TYPE_CHECKING", "TypedDict"])
    imports = f"import ssl\nfrom typing import {typing}\n\n" + _import("oncelog.config", from_config)
    lazily = "\nif TYPE_CHECKING:\n    from oncelog.tracing import Tracing  # needs OpenTelemetry\n"
    return f"{HEAD}{imports}{lazily}\n\n{body}"


def _import(module: str, names: list[str]) -> str:
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"


def _typed_dict(name: str, config: type[ClientConfig]) -> str:
    source = inspect.getsource(config)
    (declared,) = ast.parse(source).body
    assert isinstance(declared, ast.ClassDef)
    base = "TypedDict" if config is ClientConfig else "ClientOptions"
    lines = [f"class {name}({base}, total=False):", f'    """{ast.get_docstring(declared)}"""', ""]
    for statement, following in zip(declared.body, [*declared.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        annotation = ast.unparse(statement.annotation)
        if annotation.startswith("ClassVar") or statement.target.id == POSITIONAL:
            continue
        lines.append(f"    {statement.target.id}: {annotation}")
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            lines.append(f"    {ast.get_source_segment(source, following)}")
    return "\n".join(lines) + "\n"
