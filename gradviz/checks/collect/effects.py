"""Sees calls of torch that have no effect, or one more each time: what is clipped, loaded, hooked, or given the same twice."""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from types import CodeType, FrameType, GeneratorType
from typing import Any

import torch

from gradviz.checks.collect.calls import ByIdentity, Observer, TorchCall, reads, taps
from gradviz.checks.collect.lines import leaf_of, line_at
from gradviz.checks.collect.numbers import is_readable
from gradviz.cuts.torch_calls import PLAIN
from gradviz.packages import definition_of, package_of
from gradviz.source.search import ignores_argument, lines_behind
from gradviz.walker.isolation import isolated, unrecorded
from gradviz.walker.taps import Ended
from gradviz.walker.walk import live_nodes

_KEEPS = re.compile(r"= ([\w.]+\.parameters\(\))$")  # an iterator under a name
_STEPS = 3  # of which each registers the same hook once more
_ALIKE = 0.8
_BOUND = 100  # hooks of one line, and lines, that are noted between two calls
_LOOKS = 8  # differences of a line that are looked at
_CLIPS: Any = torch.nn.utils.clip_grad
_HOOKED = (
    torch.nn.Module.register_forward_hook,
    torch.nn.Module.register_forward_pre_hook,
    torch.nn.Module.register_full_backward_hook,
    torch.nn.Module.register_full_backward_pre_hook,
    torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook,
)
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_post_accumulate_grad_hooks",
)


class EffectWatch(Observer):
    """Of one run."""

    def _begin(self) -> None:
        self._registered = ByIdentity[dict[CodeType, set[int]]]()  # steps that registered a hook, by its code
        self._seeded: dict[object, int] = {}  # the last step, by line and seed

    @reads("sub", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div")
    def _subtracted(self, call: TorchCall) -> None:
        """Two results of the same leaves, which are equal and not constant."""
        (first, second), line = call.pairs[0], call.users_line
        recorded = all(type(one) in PLAIN and one.requires_grad for one in (first, second))
        if not recorded or first is second or first.shape != second.shape or line is None or first.numel() < 2:
            return
        inside = call.name == "sub" and line != call.line  # torch's own code has its reasons
        looks = not inside and not package_of(line[0].co_filename) and self._looks(line, _LOOKS)
        equal = looks and is_readable(first) and _equal(first, second, call.name == "kl_div")
        if equal and leaves(first) == leaves(second):
            self._note("cancels", call.place)

    @taps(_CLIPS.clip_grad_norm_, _CLIPS.clip_grad_value_)
    def _clips(self, frame: FrameType, parameters: object = None, *_: Any, **__: Any) -> None:
        behind = gc.get_referents(parameters) if type(parameters) in (filter, map) else [parameters]
        if any(type(one) is GeneratorType and one.gi_frame is None for one in behind):
            place = self._place(frame.f_back)
            source = line_at(place) if place is not None else None
            kept = [at for at in lines_behind(source) if _KEEPS.search(at.text)]
            new = _KEEPS.sub(r"= list(\1)", kept[0].text) if kept else ""
            self._note("clips nothing", kept[0] if kept else source, mended=new)

    @taps(torch.manual_seed)
    def _seeds(self, frame: FrameType, seed: Any) -> None:
        """Draws begin anew: whether a line does so in steps that follow each other, and something was drawn in between."""
        key = place, number = self._place(frame.f_back), int(seed)
        with isolated():
            drawn = not torch.equal(torch.Generator().manual_seed(number).get_state(), torch.get_rng_state())
        if drawn and self._step - self._seeded.get(key, -_STEPS) in (1, 2) and not self._looks(key, _STEPS - 2):
            self._note("seeded again", place, number)
        if len(self._seeded) > _BOUND:
            self._seeded.clear()
        self._seeded[key] = self._step

    @taps(torch.set_rng_state)
    def _restores(self, frame: FrameType, *_: Any, **__: Any) -> None:
        self._seeded.clear()

    @taps(*_HOOKED)
    def _hooks(
        self, frame: FrameType, module: torch.nn.Module | torch.Tensor, hook: Any, *_: Any, **__: Any
    ) -> Ended | None:
        code = _code_of(hook)
        if code is None or package_of(code.co_filename):
            return None
        # a hook that is registered in each step is read once
        if isinstance(module, torch.Tensor) and self._looks(code, 1) and ignores_argument(definition_of(code)):
            self._note("hook ignores", definition_of(code))

        def ended(returned: bool, result: object) -> None:
            registered = self._registered.of(module) or defaultdict(set)
            self._registered.put(module, registered)
            steps = registered[code]
            steps.add(self._step)
            every = [hooks.values() for name in _HOOKS if (hooks := getattr(module, name, None))]
            alive = sum(_code_of(other) is code for hooks in every for other in hooks)
            if min(len(steps), alive) >= _STEPS:
                self._note("hooks pile up", self._place(frame.f_back), type(module).__name__, alive)

        return ended


def _equal(first: torch.Tensor, second: torch.Tensor, logarithmic: bool) -> bool:
    """Whether two tensors have the same numbers, which are not all one. `logarithmic`: of the first these are logarithms."""
    with unrecorded():
        equal = torch.allclose(first.exp(), second) if logarithmic else torch.equal(first, second)
        return equal and bool((first != first.flatten()[0]).any())


def leaves(tensor: torch.Tensor) -> set[int]:
    """The leaves that a tensor was computed from, by identity."""
    return {id(leaf) for node in live_nodes([tensor]) if (leaf := leaf_of(node)) is not None}


def _code_of(hook: Any) -> CodeType | None:
    """The code of a function, a method, a part of one, or an object that can be called."""
    hook = getattr(hook, "func", hook)
    made = getattr(hook, "__func__", hook)
    code = getattr(made, "__code__", getattr(type(made).__call__, "__code__", None))
    return code if type(code) is CodeType else None


def settings_unread(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str]]:
    """What was set of an optimizer that torch does not read, and what it does read: ("learning_rate", "lr")."""
    if not type(optimizer).__module__.startswith("torch.optim."):
        return
    known, own = optimizer.defaults, [key for key in vars(optimizer) if not key.startswith("_")]
    added = {key for group in optimizer.param_groups for key in group} - known.keys()
    for key in [*own, *added]:
        alike = (
            get_close_matches(key, known, 1, _ALIKE) if not key.endswith(tuple(f"_{name}" for name in known)) else []
        )
        for meant in ["lr"] if key == "learning_rate" else alike:
            yield (f".{key}" if key in own else key), meant
