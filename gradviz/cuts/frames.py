"""What a frame of the user's is doing: which instruction reads an attribute of a tensor,
and with what; and frames of ours, which nobody is to see.
"""

from __future__ import annotations

import dis
import linecache
import sys
from traceback import walk_tb
from types import FrameType, FunctionType
from typing import Any

from gradviz.packages import is_foundation

_METHOD_BIT = sys.version_info >= (3, 12)
_LOAD_ATTR, _LOAD_METHOD = dis.opmap["LOAD_ATTR"], dis.opmap.get("LOAD_METHOD")


def reads(frame: FrameType, to_call: bool) -> bool:
    """Whether the running instruction reads an attribute, or reads a method to call it,
    other than `hasattr(x, "detach")`.
    """
    code, offset = frame.f_code.co_code, frame.f_lasti
    if to_call and not _METHOD_BIT:
        return code[offset] == _LOAD_METHOD
    return code[offset] == _LOAD_ATTR and bool(code[offset + 1] & 1 or not to_call)


def first_argument(frame: FrameType) -> Any:
    """What a method is about to be called with, where that is a name."""
    # nobody has evaluated it yet: what the next instruction loads is all there is
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset <= frame.f_lasti:
            continue
        name = instruction.argval
        if not instruction.opname.startswith("LOAD_") or not isinstance(name, str):
            return None
        return frame.f_locals.get(name, frame.f_globals.get(name))
    return None


def begins_block(frame: FrameType) -> bool:
    """Whether its line is a `with` or a decorator, which take back what they switch."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
    return line.strip().startswith(("with ", "async with ", "@"))


def is_the_users(error: BaseException) -> bool:
    """Whether an exception comes from code that ran in between, as a handler of signals
    does.
    """
    *_, (frame, _) = walk_tb(error.__traceback__)
    return not is_foundation(frame.f_code.co_filename)


# -- frames of ours --------------------------------------------------------------------

_OURS = "<gradviz>"
_CALL: Any = lambda function, args, options: function(*args, **options)  # noqa: E731 - of one line


def on_its_line(
    caller: FrameType,
    function: Any,
    args: Any,
    options: Any,
) -> Any:
    """What a function returns, called from a line that is the caller's to whoever asks,
    so that a warning is issued there.
    """
    code = _CALL.__code__.replace(
        co_filename=caller.f_code.co_filename,
        co_firstlineno=caller.f_lineno or 1,
        co_name=_OURS,
    )
    return FunctionType(code, caller.f_globals)(function, args, options)


def hide_ours(error: BaseException) -> None:
    """Take the functions of this folder from a traceback, to which a bare `raise` adds
    none again, from Python 3.11 on.
    """
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    error.__traceback__ = trace


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module.startswith("gradviz.cuts.") or frame.f_code.co_name == _OURS
