"""What a script leaves, bit for bit: tensors, gradients, generators, settings of the interpreter and of torch.

`write` is called by the last line of each script. It knows nothing of gradviz.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import pickle
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, is_traceable_wrapper_subclass

PLACE = "JOURNAL"  # of the environment: the file to write
VISIBLE = "what can be seen of gradviz"  # in every script alike
_DEPTH = 6  # of containers in one another
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_parametrizations",
)
_FACES = {  # what is replaced while a script is looked at, and others that could be
    "torch.from_numpy": lambda: torch.from_numpy,
    "torch.compile": lambda: torch.compile,
    "torch.no_grad": lambda: torch.no_grad,
    "torch.autograd.backward": lambda: torch.autograd.backward,
    "torch.autograd.grad": lambda: torch.autograd.grad,
    "torch.autograd.Function.apply": lambda: torch.autograd.Function.apply,
    "torch.Tensor.backward": lambda: torch.Tensor.backward,
    "torch.Tensor.detach": lambda: torch.Tensor.detach,
    "torch.Tensor.item": lambda: torch.Tensor.item,
    "torch.nn.Module.__call__": lambda: nn.Module.__call__,
    "torch.nn.Module.to": lambda: nn.Module.to,
    "torch.nn.Parameter.__new__": lambda: nn.Parameter.__new__,
    "torch.optim.Optimizer.__init__": lambda: torch.optim.Optimizer.__init__,
    "torch.optim.SGD.step": lambda: torch.optim.SGD.step,
    "torch.optim.SGD.zero_grad": lambda: torch.optim.SGD.zero_grad,
    "torch.nn.utils.clip_grad_norm_": lambda: nn.utils.clip_grad_norm_,
    "torch.utils.checkpoint.checkpoint": lambda: torch.utils.checkpoint.checkpoint,
    "torch.is_anomaly_enabled": lambda: torch.is_anomaly_enabled,
}


def write(variables: Mapping[str, Any]) -> None:
    """Write down everything that these global variables hold, and the state of the process."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    noted = {
        "printed": os.fstat(2).st_size,
        "generators": _generators(),
        "settings": _settings(),
        VISIBLE: {**_modes(), **{name: _face(find()) for name, find in _FACES.items()}},
        "values": dict(_values(variables)),
    }
    with open(os.environ[PLACE], "w") as file:
        json.dump(noted, file)


def _generators() -> dict[str, str]:
    return {
        "random": _hash(repr(random.getstate()).encode()),
        "numpy": _hash(repr(numpy.random.get_state(legacy=True)).encode()),
        "torch": _hash(torch.get_rng_state().numpy().tobytes()),
    }


def _settings() -> dict[str, object]:
    found = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "default dtype": torch.get_default_dtype(),
        "threads of torch": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "filters of warnings": warnings.filters,
        "showwarning": warnings.showwarning.__qualname__,
        "trace and profile": (sys.gettrace(), sys.getprofile()),
        "hooks of sys": [getattr(sys, name).__qualname__ for name in ("excepthook", "unraisablehook", "displayhook")],
        "threads": [thread.name for thread in threading.enumerate() if not thread.daemon],
        "handlers": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)],
        "recursion limit": sys.getrecursionlimit(),
        "garbage": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "streams": [(one.name, one.encoding, one.errors, one.line_buffering) for one in (sys.stdout, sys.stderr)],
        "arguments": sys.argv,
        "main": sys.modules["__main__"].__name__,
        "environment": sorted(set(os.environ) - {PLACE}),
        "folder": os.path.basename(os.path.dirname(os.getcwd())),
    }
    return {name: repr(value).split(" at 0x")[0] for name, value in found.items()}


def _modes() -> dict[str, object]:
    return {
        "function modes": [type(mode).__name__ for mode in _get_current_function_mode_stack()],
        "has_torch_function": torch.overrides.has_torch_function(()),
        "dispatch modes": [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()],
    }


def _face(function: Any) -> list[object]:
    """What code that only looks at a function sees of it."""
    try:
        signature = str(inspect.signature(function))
    except (ValueError, TypeError):
        signature = ""
    try:
        same = pickle.loads(pickle.dumps(function)) == function
    except Exception as error:
        same = type(error).__name__
    return [
        *(getattr(function, name, None) for name in ("__module__", "__qualname__", "__name__", "__doc__")),
        signature,
        same,
    ]


def _values(variables: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Each number and tensor that variables hold, by name. What is seen again under another name is told again."""
    open_ones = [(name, value, 0) for name, value in variables.items() if not name.startswith("__")]
    while open_ones:
        name, value, depth = open_ones.pop()
        if isinstance(value, torch.Tensor):
            yield from _tensor(name, value)
        elif isinstance(value, numpy.ndarray):
            yield name, _hash(value.tobytes())
        elif isinstance(value, float | int | str | bool | complex | None):
            yield name, repr(value)
        elif depth < _DEPTH:
            open_ones += [(f"{name}.{key}", one, depth + 1) for key, one in _inside(name, value)]


def _inside(name: str, value: Any) -> list[tuple[object, Any]]:
    """What a container or an object of the script's holds."""
    if isinstance(value, nn.Module):
        hooks = [(hooks, len(getattr(value, hooks, ()))) for hooks in _HOOKS]
        own = [*value._parameters.items(), *value._buffers.items(), *value._modules.items()]
        return [*own, *hooks, ("training", value.training), ("attributes", " ".join(sorted(vars(value))))]
    if isinstance(value, torch.optim.Optimizer):
        hooks = [(hooks, len(found)) for hooks, found in vars(value).items() if hooks.endswith("_hooks")]
        return [*value.state_dict().items(), *hooks]
    if isinstance(value, dict):
        return [(key if isinstance(key, str | int) else place, one) for place, (key, one) in enumerate(value.items())]
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if type(value).__module__ == "__main__" and not isinstance(value, type):
        return list(getattr(value, "__dict__", {}).items())
    return []


def _tensor(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, object]]:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        yield name, [*_facts(tensor), *_bits(tensor)]
        if tensor.is_leaf and tensor.grad is not None:
            yield f"{name}.grad", [*_facts(tensor.grad), *_bits(tensor.grad)]


def _facts(tensor: torch.Tensor) -> list[object]:
    return [
        type(tensor).__name__,
        str(tensor.dtype),
        list(tensor.shape) if not tensor.is_nested else [],
        tensor.requires_grad,
        type(tensor.grad_fn).__name__,
        tensor._version if not tensor.is_inference() else None,
        len(tensor._backward_hooks or ()),
        len(getattr(tensor, "_post_accumulate_grad_hooks", None) or ()),
        sorted(getattr(tensor, "__dict__", ())),
    ]


def _bits(tensor: torch.Tensor) -> list[str]:
    """Hashes of a tensor's numbers; none where it has none of its own."""
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return []
    if is_traceable_wrapper_subclass(tensor):
        return [one for inner in tensor.__tensor_flatten__()[0] for one in _bits(getattr(tensor, inner))]
    if tensor.is_nested:
        return [one for part in tensor.unbind() for one in _bits(part)]
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return [_hash(tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().tobytes())]


def _hash(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()[:16]
