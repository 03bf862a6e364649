"""Protobuf: protoc parses a .proto text or a serialized descriptor, in a separate process and in limited time.

Two descriptors are compared by their encoding, which contains numbers and kinds of fields but no names of fields and
packages.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from oncelog_registry.formats.fingerprints import serialized_descriptor
from oncelog_registry.formats.resolved import Resolved
from oncelog_registry.limits import PROTOC_SECONDS

MAIN_FILE: Final = "schema.proto"

_F = FieldDescriptorProto
KINDS: Final = (
    frozenset({_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM}),
    frozenset({_F.TYPE_SINT32, _F.TYPE_SINT64}),
    frozenset({_F.TYPE_STRING, _F.TYPE_BYTES}),
    frozenset({_F.TYPE_FIXED32, _F.TYPE_SFIXED32}),
    frozenset({_F.TYPE_FIXED64, _F.TYPE_SFIXED64}),
)
"""Groups of field kinds that can read each other's encoding."""


class Compiled(NamedTuple):
    """The compiled file, and all messages by full name, including those of its imports."""

    file: FileDescriptorProto
    messages: Mapping[str, DescriptorProto]


def parse(resolved: Resolved) -> Compiled:
    """Return the compiled file. Raises ValueError for an invalid file; TimeoutError if the compiler takes longer than
    PROTOC_SECONDS.
    """
    binary = serialized_descriptor(resolved.schema.text)
    file, others = _compiled_text(resolved) if binary is None else _compiled_descriptor(binary, resolved)
    messages: dict[str, DescriptorProto] = {}
    for each in (*others, file):
        _collect(each.package, each.message_type, messages)
    return Compiled(file, messages)


def serialized(resolved: Resolved) -> str:
    """Return the file descriptor in base64, which clients request with `format=serialized`. Raises ValueError."""
    binary: bytes = parse(resolved).file.SerializeToString(deterministic=True)
    return base64.b64encode(binary).decode()


def differences(reader: Compiled, writer: Compiled) -> list[str]:
    """Return the reasons why `reader` cannot read data of `writer`; empty if it can."""
    found: list[str] = []
    ours = _own_messages(reader.file)
    for name, written in _own_messages(writer.file).items():
        known = ours.get(name)
        if known is None:
            found.append(f"the reader has no message {name}")
        else:
            found += _differ(known, written, name)
    return found


def _own_messages(file: FileDescriptorProto) -> dict[str, DescriptorProto]:
    messages: dict[str, DescriptorProto] = {}
    _collect("", file.message_type, messages)
    return messages


def _differ(reader: DescriptorProto, writer: DescriptorProto, name: str) -> list[str]:
    found = []
    ours = {field.number: field for field in reader.field}
    theirs = {field.number: field for field in writer.field}
    for number, field in sorted(ours.items()):
        written = theirs.get(number)
        if written is None:
            if field.label == _F.LABEL_REQUIRED:
                found.append(f"{name}: the reader requires field {number}, which the writer does not have")
        else:
            found += [f"{name}: field {number} {each}" for each in _differ_in_field(field, written)]
    for number, written in sorted(theirs.items()):
        if number not in ours and written.label == _F.LABEL_REQUIRED:
            found.append(f"{name}: field {number} is required by the writer, and the reader does not have it")
    return found + _differ_in_oneofs(reader, writer, name)


def _differ_in_field(reader: FieldDescriptorProto, writer: FieldDescriptorProto) -> list[str]:
    found = []
    if not _is_same_kind(reader, writer):
        found.append("has another type")
    elif reader.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP) and _last(reader) != _last(writer):
        found.append(f"was a {writer.type_name.lstrip('.')} and is a {reader.type_name.lstrip('.')}")
    repeated = reader.label == _F.LABEL_REPEATED, writer.label == _F.LABEL_REPEATED
    if repeated[0] != repeated[1] and reader.type not in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE):
        found.append("is repeated on one side only")
    if reader.label == _F.LABEL_REQUIRED and writer.label != _F.LABEL_REQUIRED:
        found.append("is required by the reader, and the writer may leave it out")
    return found


def _is_same_kind(reader: FieldDescriptorProto, writer: FieldDescriptorProto) -> bool:
    return reader.type == writer.type or any(reader.type in kind and writer.type in kind for kind in KINDS)


def _last(field: FieldDescriptorProto) -> str:
    """Return the name of a type without its package, because the encoding does not contain the package."""
    return str(field.type_name).rpartition(".")[2]


def _differ_in_oneofs(reader: DescriptorProto, writer: DescriptorProto, name: str) -> list[str]:
    found = []
    single = {field.number for field in writer.field if not _is_in_oneof(field)}
    for index, oneof in enumerate(reader.oneof_decl):
        members = {field.number for field in reader.field if _is_in_oneof(field) and field.oneof_index == index}
        if len(members & single) > 1:
            found.append(f"{name}: several fields of the writer were moved into the oneof {oneof.name}")
    kept = {field.number for field in reader.field}
    found += [
        f"{name}: field {field.number} of a oneof was removed"
        for field in writer.field
        if _is_in_oneof(field) and field.number not in kept
    ]
    return found


def _is_in_oneof(field: FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _collect(prefix: str, messages: Iterable[DescriptorProto], into: dict[str, DescriptorProto]) -> None:
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        into[name] = message
        _collect(name, message.nested_type, into)


# --- running the compiler


def _compiled_text(resolved: Resolved) -> tuple[FileDescriptorProto, list[FileDescriptorProto]]:
    files = {MAIN_FILE: resolved.schema.text}
    for name, schema in resolved.referred:
        if serialized_descriptor(schema.text) is not None:
            raise ValueError(f"the referenced schema {name} is a serialized descriptor: register it as a .proto text")
        files[_safe(name)] = schema.text
    compiled = _protoc(files)
    return compiled[-1], compiled[:-1]


def _safe(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name == MAIN_FILE or "\0" in name or str(path) != name:
        raise ValueError(f"the reference {name!r} is not a valid import name")
    return name


def _protoc(files: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Return the files and their imports, each file after its own imports."""
    with tempfile.TemporaryDirectory(prefix="oncelog-protoc-") as directory:
        inside = Path(directory, "in")
        for name, text in files.items():
            path = inside / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", errors="surrogatepass")
            except OSError as error:
                raise ValueError(f"the reference {name[:100]!r} is not a valid file name: {error.strerror}") from None
        target = os.path.join(directory, "out")
        included = Path(_well_known())
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={inside}", f"--proto_path={included}"]
        command += ["--include_imports", f"--descriptor_set_out={target}", MAIN_FILE]
        try:
            ended = subprocess.run(  # noqa: S603 - our own arguments
                command, capture_output=True, timeout=PROTOC_SECONDS, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the compiler of Protobuf took longer than {PROTOC_SECONDS:.0f} s") from None
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").replace(f"{inside}{os.sep}", "").strip()
            raise ValueError(said or f"protoc ended with {ended.returncode}")
        return list(FileDescriptorSet.FromString(Path(target).read_bytes()).file)


def _well_known() -> str:
    """Return the directory that contains google/protobuf/*.proto."""
    import grpc_tools

    return os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")


def _compiled_descriptor(binary: bytes, resolved: Resolved) -> tuple[FileDescriptorProto, list[FileDescriptorProto]]:
    file, others = _descriptor(binary), []
    for name, schema in resolved.referred:
        other = serialized_descriptor(schema.text)
        if other is None:
            others += [each for each in _protoc({MAIN_FILE: schema.text}) if each.name == MAIN_FILE]
        else:
            others.append(_descriptor(other))
        others[-1].name = name
    _check_links(file, others)
    return file, others


def _descriptor(binary: bytes) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(binary)
    except DecodeError as error:
        raise ValueError("neither a .proto text nor a file descriptor in base64") from error
    if not file.message_type and not file.enum_type:
        raise ValueError("the file descriptor has no message")
    return file


def _check_links(file: FileDescriptorProto, others: list[FileDescriptorProto]) -> None:
    """Check the types and imports that a file names. Raises ValueError if one of them is unknown."""
    pool: Any = DescriptorPool()
    try:
        for name in _known_imports([file, *others]):
            pool.Add(name)
        for each in others:
            pool.Add(each)
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"the file descriptor cannot be used: {error}") from error


def _known_imports(files: list[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files of google/protobuf that are imported. Raises ValueError if the file does not exist."""
    import importlib

    found = []
    for name in dict.fromkeys(name for file in files for name in file.dependency):
        if name.startswith("google/protobuf/") and name.endswith(".proto"):
            try:
                module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
                found.append(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
            except (ImportError, AttributeError):
                raise ValueError(f"no file {name} to import") from None
    return found
