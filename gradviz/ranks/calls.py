"""Notes every call of `torch.distributed` that a process makes in a file, and reads it: which calls, and in which one it stands.

The notes are written at once, so that they tell where a process was that hangs or was killed. Starts no communication and
changes none; everything replaced is put back.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

from gradviz.graph import CollectiveCall, SourceLine, TensorInfo
from gradviz.packages import code_line, with_text
from gradviz.run.engine import calling, when_imported

MOST = 20_000  # calls noted of one process; what comes later is counted
_NAMES = """all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single all_reduce
all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list
destroy_process_group gather gather_object init_process_group irecv isend monitored_barrier new_group recv
recv_object_list reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list send
send_object_list"""
_FUNCTIONAL = """all_gather_tensor all_gather_tensor_autograd all_reduce all_reduce_coalesced all_to_all_single
all_to_all_single_autograd broadcast reduce_scatter_tensor reduce_scatter_tensor_autograd"""
_HOMES = (
    ("torch", ("torch.distributed", "torch.distributed.distributed_c10d"), _NAMES),
    ("torch.distributed._functional_collectives", ("torch.distributed._functional_collectives",), _FUNCTIONAL),
    ("torch", ("torch.autograd", "torch.autograd.graph"), "_engine_run_backward"),
    ("torch", ("torch.distributed.Work",), "wait"),
)
_WORDS = {"_engine_run_backward": "backward"}
_TENSORS = ("tensor", "input_tensor", "input", "output_tensor", "self", "output", "tensor_list", "input_list")
_MESSAGES = ("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list")
"""Calls between two ranks. `batch_isend_irecv` is noted as those that it makes."""

Gate = Callable[[bool, Callable[[str], None]], None]

_notes: list[_Notes] = []  # those that are being made


def noted() -> tuple[CollectiveCall, ...]:
    """The calls that were noted so far, where they are being recorded."""
    return tuple(_notes[-1].calls.values()) if _notes else ()


@contextmanager
def recorded_calls(path: str = os.devnull, gate: Gate | None = None) -> Iterator[None]:
    """Note the calls of the block in a file, one record a line: one where a call begins, one where it ends.

    `gate` is called before each, which is noted already, with whether it is a backward call that fills `.grad`, and with what
    notes that the call is "held" and that it may "go". What it raises goes to the user's code: then the call was not made.
    """
    notes = _Notes(path, gate)
    _notes.append(notes)
    with ExitStack() as stack:
        stack.callback(notes.close)
        stack.callback(_notes.remove, notes)
        for module, homes, names in _HOMES:
            replace = functools.partial(_replace, notes, homes, names, stack)
            stack.enter_context(when_imported(module, replace))
        yield


def _replace(notes: _Notes, homes: tuple[str, ...], names: str, stack: ExitStack) -> None:
    """Put a function that notes in the place of each of these, until the stack is left. What this torch lacks is left out."""
    for name in names.split():
        places = [place for place in map(_home, homes) if hasattr(place, name)]
        if places:
            original = getattr(places[-1], name)
            noting = _noting(notes, _WORDS.get(name, name), original)
            for place in places:
                if getattr(place, name) is original:
                    setattr(place, name, noting)
                    stack.callback(setattr, place, name, original)


def _home(name: str) -> Any:
    """A module, or a class in one; None where this torch has not got it."""
    module, _, kind = name.rpartition(".")
    return sys.modules.get(name) or getattr(sys.modules.get(module), kind, None)


def _noting(notes: _Notes, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noting(*arguments: Any, **options: Any) -> Any:
        if sys.modules["torch"].compiler.is_compiling() or not notes.begin(name, sys._getframe(1), arguments, options):
            return original(*arguments, **options)
        try:
            return original(*arguments, **options)
        finally:
            notes.end()

    return noting


class _Notes:
    """The file. Calls that one of these functions makes of another are a part of it and not noted."""

    def __init__(self, path: str, gate: Gate | None) -> None:
        self._gate = gate
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_TRUNC, 0o600)
        self._process = os.getpid()
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._count = 0
        self.calls: dict[int, CollectiveCall] = {}

    def begin(self, name: str, frame: FrameType, arguments: Any, options: Any) -> bool:
        """Note that a call begins. False when it is part of another, or of a process that was forked off."""
        if getattr(self._inside, "calls", ()) or self._file < 0 or os.getpid() != self._process:
            return False
        records: list[dict[str, Any]] = [{"op": name}]
        if self._count < MOST:
            with suppress(Exception):  # a note is never worth an error in the user's program
                records = _records(name, frame, arguments, options)
        with self._lock:
            first = self._count + 1
            self._count += len(records)
        self._inside.calls = range(first, first + len(records))
        for number, record in zip(self._inside.calls, records):
            if number <= MOST:
                self.calls[number] = _call_of(record)
            self._write({"begin": number, **record})
        if self._gate is not None and threading.current_thread() is threading.main_thread():
            self._pass(self._gate, name == "backward" and bool(options.get("accumulate_grad")))
        return True

    def _pass(self, gate: Gate, fills: bool) -> None:
        """Wait until the call may be made. Where it must not be, it is taken back."""
        last = self._inside.calls[-1]
        try:
            gate(fills, lambda what: self._write({what: last}))
        except BaseException:
            numbers, self._inside.calls = self._inside.calls, ()
            for number in numbers:
                self.calls.pop(number, None)
                self._write({"undone": number})
            raise

    def end(self) -> None:
        """Note that the call of this thread has ended."""
        numbers, self._inside.calls = self._inside.calls, ()
        for number in numbers:
            if number in self.calls:
                self.calls[number] = self.calls[number]._replace(ended=True)
            self._write({"end": number})

    def close(self) -> None:
        """Note nothing more."""
        file, self._file = self._file, -1
        os.close(file)

    def _write(self, told: dict[str, Any]) -> None:
        with suppress(OSError):
            os.write(self._file, (json.dumps(told, separators=(",", ":")) + "\n").encode())


def _records(name: str, frame: FrameType, arguments: Any, options: Any) -> list[dict[str, Any]]:
    """What to note of one call: one record, or one for each message of a batch of them."""
    line = _users_line(frame)
    where = {"source": line} if line is not None else {}
    if name != "batch_isend_irecv":
        return [{"op": name, **where, **_arguments_of(name, arguments, options)}]
    return [
        {
            "op": message.op.__name__,
            **where,
            **_arguments_of("isend", (message.tensor, message.peer, message.group, message.tag), {}),
        }
        for message in (*arguments, *options.values())[0]
    ]


def _arguments_of(name: str, arguments: Any, options: Any) -> dict[str, Any]:
    """The first tensor, the group, the rank that the call names, and the tag of a message."""
    if name == "backward":
        return {}
    import torch

    told: dict[str, Any] = {}
    values = [*arguments, *(options[key] for key in _TENSORS if key in options)]
    tensor = next((tensor for tensor in map(_tensor, values) if tensor is not None), None)
    if tensor is not None:
        told["tensor"] = [list(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device)]
    given = (options.get("group"), *arguments)
    group = next((value for value in given if isinstance(value, torch.distributed.ProcessGroup)), None)
    if group is not None:
        ranks = torch.distributed.get_process_group_ranks(group)
        told["group"] = ranks if len(ranks) < torch.distributed.get_world_size() else []
    peer = _peer(name, arguments, options, group)
    if peer is not None:
        told["peer"] = peer
    tag = options.get("tag", arguments[3] if name in _MESSAGES and len(arguments) > 3 else 0)
    if tag:
        told["tag"] = tag
    return told


def _tensor(value: Any) -> Any:
    import torch

    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None


def _peer(name: str, arguments: Any, options: Any, group: Any) -> int | None:
    """The rank that a call names, as a rank of all; None where it names none."""
    keys = ("src", "dst", "group_src", "group_dst")
    named = {key: options[key] for key in keys if isinstance(options.get(key), int)}
    second = arguments[1] if name in ("broadcast", "reduce", *_MESSAGES) and len(arguments) > 1 else None
    peer = named.get("src", named.get("dst"))
    within = named.get("group_src", named.get("group_dst"))
    if peer is None and within is not None:
        import torch

        members: Any = torch.distributed.group.WORLD if group is None else group
        peer = torch.distributed.get_global_rank(members, within)
    return peer if peer is not None else second if isinstance(second, int) else None


def _users_line(frame: FrameType) -> list[Any] | None:
    nearest = calling(frame)
    return list(with_text(code_line(nearest.f_code, nearest.f_lineno))) if nearest is not None else None


# -- reading -----------------------------------------------------------------------------------------------------------

_END = 8192  # bytes to look at for the last call


def calls_of(path: str) -> tuple[CollectiveCall, ...]:
    """The calls in a file of notes of which the line is known."""
    begun: dict[int, CollectiveCall] = {}
    with (
        suppress(OSError, ValueError),
        open(path, encoding="utf-8") as file,
    ):  # it may be cut off: the process was killed
        for record in map(json.loads, file):
            begun.pop(record.get("undone"), None)
            if record.get("end") in begun:
                begun[record["end"]] = begun[record["end"]]._replace(ended=True)
            elif "begin" in record and "source" in record:
                begun[record["begin"]] = _call_of(record)
    return tuple(begun.values())


def _call_of(record: Mapping[str, Any]) -> CollectiveCall:
    """One noted call, which has not ended yet."""
    tensor = record.get("tensor")
    return CollectiveCall(
        record["op"],
        SourceLine(*record["source"]) if "source" in record else None,
        TensorInfo(tuple(tensor[0]), tensor[1], tensor[2]) if tensor else None,
        tuple(record.get("group", ())),
        record.get("peer"),
        ended=False,
        tag=record.get("tag", 0),
    )


def last_call(path: str) -> tuple[int, dict[str, Any] | None]:
    """Bytes of a file of notes, and the call that has begun last if it has not ended; "held" where it waits to be made."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END))
            lines = file.read().splitlines()
    except OSError:
        return 0, None
    records = []
    for line in lines:
        with suppress(ValueError):
            records.append(json.loads(line))
    over = {record.get(key) for record in records for key in ("end", "undone")}
    begun = (record for record in reversed(records) if "begin" in record and record["begin"] not in over)
    call = next(begun, None)
    if call is not None:
        marks = [mark for record in records for mark in ("held", "go") if record.get(mark) == call["begin"]]
        call |= {"held": True} if marks[-1:] == ["held"] else {}
    return size, call
