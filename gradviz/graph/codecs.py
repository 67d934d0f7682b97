"""Codecs of graph files: each turns one kind of value into plain JSON and back, for
`gradviz.graph.files`.

Reading trusts nothing and raises `Bad`, which gathers the path to the value on its way
up. This module knows no record of the graph model by name, no file and no envelope.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

BIG = 2**63
"""Whole numbers from here on are written in hexadecimal: many readers have 64 bits, and
Python limits digits.
"""
# no count, size or line number is as large; sums and texts of larger ones fail
HUGE = 2**256
_NOT_FINITE = ("inf", "-inf", "nan")
DEPTH = 100  # no attribute of a node is nested as deep


class Bad(Exception):
    """A value that is not what it should be. `where` is the path to it: `nodes[3].op`."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(problem, where)
        self.problem, self.where = problem, where

    def inside(self, step: str) -> Bad:
        """The same, seen from one level further out."""
        return Bad(self.problem, step + self.where)


class DistinctValues(dict[Any, int]):
    """Distinct values in the order met, for records to refer to by index."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


class Context:
    """What references refer to: tables that fill up while writing, values and list
    lengths while reading.
    """

    def __init__(self) -> None:
        self.written: dict[str, DistinctValues] = {
            "tensors": DistinctValues(),
            "sources": DistinctValues(),
        }
        self.read: dict[str, list[Any]] = {"tensors": [], "sources": []}
        self.lengths: dict[str, int] = {}


class Codec(Protocol):
    """How values of one kind are written and read. What JSON has is written as it is."""

    def write(self, value: Any, context: Context) -> Any:
        return value

    def read(self, value: Any, context: Context) -> Any: ...


def shown(value: Any) -> str:
    """A value as an error message quotes it."""
    text = _SHORT.repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


# neither the whole of a long text, nor what is nested deep or a number with too many
# digits for `repr`
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def bounded(value: int) -> int:
    """The number, unless it is so large that no graph has it."""
    if not -HUGE < value < HUGE:
        raise Bad("is a whole number of more than 256 bits")
    return value


# -- single values ---------------------------------------------------------------------


class Plain(Codec):
    """Text, or true and false: JSON has them."""

    def __init__(self, type: type, words: str) -> None:
        self.type, self.words = type, words

    def read(self, value: Any, context: Context) -> Any:
        if type(value) is not self.type:
            raise Bad(f"is {shown(value)}, not {self.words}")
        return value


class Whole:
    """A whole number from 0 on, of any size."""

    def write(self, value: int, context: Context) -> Any:
        return value if value < BIG else {"int": hex(value)}

    def read(self, value: Any, context: Context) -> int:
        if type(value) is dict:
            value = VALUE.read(value, context)
        if type(value) is not int or value < 0:
            raise Bad(f"is {shown(value)}, not a whole number from 0 on")
        return value if value < BIG else bounded(value)


class Number:
    """A number with a fraction; one that JSON cannot say is text."""

    def write(self, value: float, context: Context) -> Any:
        return value if value - value == 0 else repr(value)

    def read(self, value: Any, context: Context) -> float:
        if type(value) is int:
            bounded(value)
        if type(value) in (int, float) or value in _NOT_FINITE:
            return float(value)
        raise Bad(f"is {shown(value)}, not a number")


class SizeCodec(Whole):
    """One size of a shape: a whole number, or the text of a symbol."""

    def write(self, value: int | str, context: Context) -> Any:
        return value if isinstance(value, str) else super().write(value, context)

    def read(self, value: Any, context: Context) -> Any:
        return value if type(value) is str else super().read(value, context)


class Word(Codec):
    """One of a few words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def read(self, value: Any, context: Context) -> str:
        if type(value) is not str or value not in self.words:
            raise Bad(
                f"is {shown(value)}, not one of {', '.join(filter(None, self.words))}"
            )
        return value


class Reference(Codec):
    """The index of a record in one of the graph's lists; or -1 for none of them, where
    `least` is that.
    """

    def __init__(self, list: str, least: int = 0) -> None:
        self.list, self.least = list, least

    def read(self, value: Any, context: Context) -> int:
        if (
            type(value) is not int
            or not self.least <= value < context.lengths[self.list]
        ):
            raise Bad(
                f"is {shown(value)}, which is no index into {self.list} (there are {context.lengths[self.list]})"
            )
        return value


class SharedCodec(Reference):
    """A value kept in a table of distinct values, and referred to by index."""

    def write(self, value: Any, context: Context) -> int:
        return context.written[self.list][value]

    def read(self, value: Any, context: Context) -> Any:
        return context.read[self.list][super().read(value, context)]


class ValueCodec:
    """What a node keeps as an attribute. JSON's own types stand for themselves, an
    array for a tuple; the rest is tagged.
    """

    def write(self, value: Any, context: Context) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -BIG < value < BIG else {"int": hex(value)}
        if kind is float:
            return value if value - value == 0 else {"float": repr(value)}
        if kind is tuple:
            return [self.write(item, context) for item in value]
        if kind is list:
            return {"list": [self.write(item, context) for item in value]}

        if kind is dict:
            return {
                "dict": [
                    [self.write(key, context), self.write(item, context)]
                    for key, item in value.items()
                ]
            }

        if kind is complex:
            return {
                "complex": [
                    self.write(value.real, context),
                    self.write(value.imag, context),
                ]
            }

        return {"bytes": value.hex()} if kind is bytes else str(value)

    def read(self, value: Any, context: Context, level: int = 0) -> Any:
        kind = type(value)
        if level > DEPTH:
            raise Bad(f"is nested more than {DEPTH} deep")
        if kind is list:
            return tuple([self.read(item, context, level + 1) for item in value])
        if kind is not dict:
            return bounded(value) if kind is int else value

        try:
            ((tag, content),) = value.items()
            return self._tagged(tag, content, context, level + 1)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise Bad(f"is {shown(value)}, which is no value of this format") from None

    def _tagged(self, tag: str, content: Any, context: Context, level: int) -> Any:
        if tag == "int":
            return bounded(int(content, 16))

        if tag == "float" and content in _NOT_FINITE:
            return float(content)

        if tag == "list":
            return list(self.read(content, context, level))
        if tag == "dict":
            return dict(self.read(content, context, level))
        if tag == "complex":
            return complex(*self.read(content, context, level))
        if tag == "bytes":
            return bytes.fromhex(content)

        raise KeyError(tag)


class AttributesCodec:
    """A mapping of names to values."""

    def write(self, value: Mapping[str, Any], context: Context) -> Any:
        return {str(name): VALUE.write(item, context) for name, item in value.items()}

    def read(self, value: Any, context: Context) -> Any:
        if type(value) is not dict:
            raise Bad(f"is {shown(value)}, not an object")
        attributes = {}
        for name, item in value.items():
            try:
                attributes[name] = VALUE.read(item, context)
            except Bad as bad:
                raise bad.inside(f"[{name!r}]") from None
        return attributes


# -- composed values -------------------------------------------------------------------


class Optional:
    """Null, or what the inner codec takes."""

    def __init__(self, inner: Codec) -> None:
        self.inner = inner

    def write(self, value: Any, context: Context) -> Any:
        return None if value is None else self.inner.write(value, context)

    def read(self, value: Any, context: Context) -> Any:
        return None if value is None else self.inner.read(value, context)


class Many:
    """An array, read as a tuple."""

    def __init__(self, inner: Codec) -> None:
        self.inner = inner

    def write(self, value: Iterable[Any], context: Context) -> Any:
        return [self.inner.write(item, context) for item in value]

    def read(self, value: Any, context: Context) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Bad(f"is {shown(value)}, not an array")
        items = []
        try:
            for item in value:
                items.append(self.inner.read(item, context))
        except Bad as bad:
            raise bad.inside(f"[{len(items)}]") from None
        return tuple(items)


class _Field(NamedTuple):
    name: str
    codec: Codec
    default: Any


_REQUIRED = object()


class Record:
    """An object with one key per field; fields at their default are left out, and
    unknown keys are passed over.
    """

    def __init__(self, make: Callable[..., Any], codecs: Mapping[str, Codec]) -> None:
        defaults = make._field_defaults  # type: ignore[attr-defined]
        names: tuple[str, ...] = make._fields  # type: ignore[attr-defined]
        self.make, self.codecs = make, codecs
        # the id of a record is its place in the list
        self.first = int(names[0] not in codecs)
        self.fields = [
            _Field(name, codecs[name], defaults.get(name, _REQUIRED))
            for name in names[self.first :]
        ]
        self.required = [
            field.name for field in self.fields if field.default is _REQUIRED
        ]

    def write(self, value: Any, context: Context) -> Any:
        written = {}
        for item, (name, codec, default) in zip(
            value[self.first :] if self.first else value, self.fields
        ):
            if item is not default and item != default:
                written[name] = codec.write(item, context)
        return written

    def read(self, value: Any, context: Context, *leading: Any) -> Any:
        if type(value) is not dict:
            raise Bad(f"is {shown(value)}, not an object")

        fields, codecs = {}, self.codecs
        key = ""
        try:
            for key, item in value.items():
                codec = codecs.get(key)
                if codec is not None:
                    fields[key] = codec.read(item, context)
        except Bad as bad:
            raise bad.inside(f".{key}") from None

        for name in self.required:
            if name not in fields:
                raise Bad("is missing", f".{name}")

        return self.make(*leading, **fields)


class RowCodec(Record):
    """An array with one entry per field; fields at their default are left out at its
    end.
    """

    def write(self, value: Any, context: Context) -> Any:
        size = len(value)
        while (
            size > len(self.required)
            and value[size - 1] == self.fields[size - 1].default
        ):
            size -= 1
        return [
            field.codec.write(item, context)
            for item, field in zip(value[:size], self.fields)
        ]

    def read(self, value: Any, context: Context, *leading: Any) -> Any:
        if type(value) is not list or not len(self.required) <= len(value) <= len(
            self.fields
        ):
            names = ", ".join(field.name for field in self.fields)
            raise Bad(f"is {shown(value)}, not an array of {names}")

        fields = []
        try:
            for item, field in zip(value, self.fields):
                fields.append(field.codec.read(item, context))
        except Bad as bad:
            raise bad.inside(f"[{len(fields)}]") from None

        return self.make(*fields)


VALUE = ValueCodec()
