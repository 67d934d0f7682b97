"""What does still disturb a script, by script and way, and why. Whoever mends it takes it out here."""

from __future__ import annotations

from tests.disturbance.journal import VISIBLE

_TO_THE_END = ("record", "render", "cut", "check", "tree", "tensors", "saved")
_COMPILED = "hooks for all modules order the inputs of a compiled graph otherwise"

KNOWN: dict[str, dict[str, str]] = {
    VISIBLE: {},
    "compiled_eagerly": dict.fromkeys(_TO_THE_END, _COMPILED),
    "profiled_ops": dict.fromkeys(("check", "tensors"), "a profiler counts operations of the command's own"),
}
