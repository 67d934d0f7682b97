"""What does still disturb a script, by script and way, and why. Whoever mends it takes it out here."""

from __future__ import annotations

from tests.disturbance.journal import VISIBLE

_TO_THE_END = ("record", "render", "check", "tree", "tensors", "saved", "info")
_READS = "check's own reads are seen by the user's dispatch mode"
_BACKWARD = "a warning that torch raises while backward runs names torch's line or gradviz's, not the user's"
_FACE = "torch.is_anomaly_enabled is a lambda without name and signature"
_AROUND = "a hook that looks at the stack sees gradviz's functions around the engine"
_EXPORT = "strict export fails at the hooks of the recording"
_COMPILED = "hooks for all modules order the inputs of a compiled graph otherwise"


def _everywhere(reason: str) -> dict[str, str]:
    return dict.fromkeys(_TO_THE_END, reason)


KNOWN: dict[str, dict[str, str]] = {
    VISIBLE: _everywhere(_FACE),
    "compiled_eagerly": _everywhere(_COMPILED),
    "exported": _everywhere(_EXPORT),
    "graphs_by_fx": {"check": "its reads are traced"},
    "profiled_ops": {"check": "a profiler counts check's own operations"},
    "scripted_and_traced": {"check": "a scripted module on the line of the loss ends it"},
    "stack_depth": _everywhere(_AROUND),
    "user_modes": {"check": _READS},
    "warnings_everywhere": _everywhere(_BACKWARD),
    "wrapper_subclass": {"check": _READS},
}
