"""The program that a target names, and running it as Python would.

Owns what such code sees of the
interpreter (`__main__`, argv, sys.path, cwd, standard streams) and puts all of it back.
Knows nothing of torch or graphs.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import io
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from traceback import print_exception
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gradviz.errors import TargetError
from gradviz.packages import BEYOND, note_code
from gradviz.run.cells import read_notebook
from gradviz.run.library import Library, Replaced, replace_again
from gradviz.run.target import Target

# -- running it ------------------------------------------------------------------------


def main_module(name: str) -> tuple[ModuleSpec, CodeType]:
    """The spec and the code of a module, or of `NAME.__main__` for a package. Imports
    the packages around it.

    Raises what importing these raises, and TargetError when there is no such module, or
    no Python code of it.
    """
    parent = name.rpartition(".")[0]
    if parent:
        _import(parent)

    spec = find_spec(name)
    if spec is None:
        raise _none(name)

    # a package: Python runs the `__main__` in it
    if spec.submodule_search_locations is not None:
        _import(name)
        spec = find_spec(f"{name}.__main__")
        if spec is None:
            raise TargetError(
                f"{name!r} is a package without a __main__ module, so there is nothing to run. Name one of its modules."
            )

    code = getattr(spec.loader, "get_code", lambda name: None)(spec.name)
    if code is None:
        raise TargetError(f"{spec.name!r} has no Python code to run ({spec.origin})")

    return spec, code


def _import(name: str) -> None:
    try:
        # and not importlib, whose frames would stand in the user's traceback
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _none(error.name) from error
        raise


def _none(name: str) -> TargetError:
    return TargetError(
        f"there is no module {name!r} in {os.getcwd()!r} nor on Python's path"
    )


def _around_scripts() -> FunctionType:
    """`exec`, called from the line that Python makes up beyond a script: a warning with
    a large `stacklevel` names it.
    """
    module = compile(
        "def execute(code, variables, exec): exec(code, variables)", BEYOND, "exec"
    )
    code = next(
        constant for constant in module.co_consts if isinstance(constant, CodeType)
    )
    return FunctionType(code, vars(sys), argdefs=(exec,))


_execute = _around_scripts()


class Program:
    """The user's code, ready to run once: the `parts` of a script, by file. `namespace`
    fills while it runs.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._main = _main(target)
        self.parts: dict[str, bytes | str | ast.Module] = {}
        self._said, self._folder = "", os.getcwd()
        self.library = Library()
        self._replaced: Replaced = []

        if target.kind == "script":
            self._folder = os.path.dirname(os.path.realpath(target.place))
            file, text = target.path, _read(target.place)
            self.parts[file] = text
            if target.is_notebook:
                notebook = read_notebook(file, target.place, text)
                self.parts, self._said = {**notebook.cells}, notebook.said

    @property
    def namespace(self) -> dict[str, Any]:
        """The globals of `__main__`, or of the imported module."""
        if self._target.cell is not None:
            return self._target.cell.namespace
        module = self._main or sys.modules.get(self._target.place)
        return vars(module) if module is not None else {}

    @property
    def made(self) -> dict[str, Any]:
        """What of it may be looked at when the code has ended: of a notebook's cell
        what that made.
        """
        if self._target.cell is not None:
            return self._target.cell.made
        return self.namespace

    def run(self) -> None:
        """Run the code to its end. Raises what it raises, and TargetError where there
        is none. Call it inside `interpreter()`.
        """
        if self._target.cell is not None:
            self._target.cell.run()
            return
        try:
            self._run()
        finally:
            # a script may have replaced `sum` or `re.compile`, which the report needs
            self._replaced = self.library.put_back()

    def _run(self) -> None:
        if self._main is None:
            _import(self._target.place)
            return

        variables = vars(self._main)
        if self._target.kind == "main":
            spec, code = main_module(self._target.place)
            variables |= {
                "__file__": spec.origin,
                "__cached__": spec.cached,
                "__loader__": spec.loader,
            }
            variables |= {"__package__": spec.parent, "__spec__": spec}
            # as `python -m` does, once the module has been found
            sys.argv[0] = str(spec.origin)
            _execute(code, variables)

        if self._said and sys.stderr is not None:
            print(self._said, file=sys.stderr)

        for file, part in self.parts.items():
            _execute(compile(part, file, "exec", dont_inherit=True), variables)

    @contextmanager
    def interpreter(self, arguments: Sequence[str]) -> Iterator[None]:
        """The interpreter as the code expects to find it; put back as it was before,
        whatever the code did to it.
        """
        if self._target.cell is not None:
            yield
            return

        with (
            _put_back(),
            _as_ipython(self._folder) if self._target.is_notebook else nullcontext(),
        ):
            sys.argv = [
                "-m" if self._target.kind == "main" else self._target.place,
                *arguments,
            ]
            if not getattr(sys.flags, "safe_path", False):
                # a script finds the modules beside it first, as under plain Python
                sys.path[:1] = [self._folder]
            modules_before, handlers = set(sys.modules), _handlers()
            if self._main is not None:
                name = self._main.__name__
                same_name = sys.modules.get(name)
                sys.modules[name] = self._main
            # a folder of installed packages, which stay
            shared = self._folder in sys.path[1:]
            try:
                yield
            finally:
                neighbours = (
                    {} if shared else _forget_neighbours(modules_before, self._folder)
                )
                if self._main is not None:
                    sys.modules.pop(name, None)
                    if same_name is not None:
                        sys.modules[name] = same_name
                note_code([*neighbours.values(), *filter(None, [self._main])])
                # what it registered runs when the process ends; pickle then looks up
                # its classes in `__main__` by name
                if self._main is not None and _handlers() > handlers:
                    neighbours["__main__"] = self._main
                    with suppress(OSError):  # the folder may be gone
                        left = neighbours, self._replaced, sys.argv, os.getcwd()
                        atexit.register(_back_to, *left)


def _main(target: Target) -> ModuleType | None:
    """An empty `__main__` with the attributes that Python gives it before the first
    line runs; None for an import.
    """
    if target.kind in ("module", "cell"):
        return None

    if target.is_imported:
        loader = SourceFileLoader(target.stem, target.path)
        return module_from_spec(ModuleSpec(target.stem, loader, origin=target.path))

    main = ModuleType("__main__")
    attributes: dict[str, Any] = {"__builtins__": builtins}
    if target.is_notebook:
        # what IPython adds, as it is outside of IPython
        attributes |= {"display": print, "get_ipython": lambda: None}
    elif target.kind == "script":
        attributes |= {
            "__file__": target.path,
            "__loader__": SourceFileLoader("__main__", target.path),
        }

    if sys.version_info < (3, 14):
        attributes["__annotations__"] = {}

    if sys.version_info < (3, 15):
        attributes["__cached__"] = None

    vars(main).update(attributes)
    return main


def _read(path: str) -> bytes:
    try:
        with io.open_code(os.path.abspath(path)) as file:
            return file.read()
    except OSError as error:
        raise TargetError(f"cannot read {path!r}: {error.strerror or error}") from error


@contextmanager
def _put_back() -> Iterator[None]:
    argv, path, folder = sys.argv, sys.path, os.getcwd()
    entries = list(path)
    main = sys.modules.get("__main__")
    streams = sys.stdin, sys.stdout, sys.stderr
    hooks = sys.excepthook, threading.excepthook

    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the user may have closed or replaced it
                stream.flush()
        # the lists themselves, which others may hold, and then their entries
        sys.argv, sys.path = argv, path
        sys.path[:] = entries
        sys.stdin, sys.stdout, sys.stderr = map(_unless_closed, streams)
        sys.excepthook, threading.excepthook = hooks
        if main is not None:
            sys.modules["__main__"] = main
        with suppress(OSError):  # the folder may be gone
            os.chdir(folder)


def _unless_closed(stream: Any) -> Any:
    """A standard stream; None, as where Python has none, if the script closed it."""
    try:
        if stream is None or stream.closed:
            return None
        os.fstat(stream.fileno())
    except (io.UnsupportedOperation, AttributeError):
        return stream  # of a notebook or a test, without a descriptor
    except (OSError, ValueError):
        return None
    return stream


@contextmanager
def _as_ipython(folder: str) -> Iterator[None]:
    """A notebook runs in its own folder and draws into itself: plt.show() must not wait
    for somebody to close a window.
    """
    window = os.environ.get("MPLBACKEND")
    os.chdir(folder)
    # a choice of the user's stays
    os.environ.setdefault("MPLBACKEND", "agg")
    sys.excepthook = print_exception  # Python's own looks for files, and a cell is none
    try:
        yield
    finally:
        if window is None:
            os.environ.pop("MPLBACKEND", None)


def _handlers() -> int:
    """How many functions Python calls when the process ends. Only a script that adds
    one is kept until then.
    """
    return getattr(atexit, "_ncallbacks", int)()


def _back_to(
    modules: dict[str, ModuleType], replaced: Replaced, argv: list[str], folder: str
) -> None:
    """What the handlers of the script find, as its end left it."""
    sys.modules.update(modules)
    replace_again(replaced)
    sys.argv = argv
    with suppress(OSError):
        os.chdir(folder)


def _forget_neighbours(modules_before: set[str], folder: str) -> dict[str, ModuleType]:
    """Drop the modules that were imported from the script's own folder, so that another
    script finds its own neighbours.
    """
    tops = {
        name
        for name in set(sys.modules) - modules_before
        # a submodule goes with its package
        if "." not in name and _folder_of(sys.modules.get(name)) == folder
    }
    dropped = [
        name
        for name in list(sys.modules)
        if name not in modules_before and name.partition(".")[0] in tops
    ]
    return {name: sys.modules.pop(name) for name in dropped}


def _folder_of(module: ModuleType | None) -> str:
    """The folder that a top-level module was found in, "" when it has none."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or ()) or (
        [spec.origin] if spec.has_location else []
    )
    if places and isinstance(places[0], str):
        return os.path.dirname(os.path.abspath(places[0]))
    return ""
