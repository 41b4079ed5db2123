"""Protobuf messages of Lance, as far as they are read here; every other field stays an unknown one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import any_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as FieldProto
from google.protobuf.descriptor_pb2 import FileDescriptorProto

TEXT, BYTES, NUMBER = FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES, FieldProto.TYPE_UINT64
ONE, MANY = FieldProto.LABEL_OPTIONAL, FieldProto.LABEL_REPEATED


def message_classes(package: str, messages: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> dict[str, Any]:
    """The message classes by name, made here: compiled ones would be tied to the version of their compiler. Pure.

    Args:
        package: a name that nothing else in this process has.
        messages: of each message its fields, as (number, type or name of a message, label if it is repeated).
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, timestamp_pb2.DESCRIPTOR.name])
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, *label) in fields.items():
            made = message.field.add(name=field, number=number, label=label[0] if label else ONE)
            if isinstance(kind, str):
                made.type_name = f".{kind}" if "." in kind else f".{package}.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{n}")) for n in messages}
