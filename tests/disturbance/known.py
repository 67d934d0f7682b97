"""What does still disturb a script, by script and way, and why. Whoever mends it takes it out here."""

from __future__ import annotations

from tests.disturbance.journal import VISIBLE

_TO_THE_END = ("record", "render", "check", "tree", "tensors", "saved", "info")
_MODE = "check runs the script under a function mode"
_READS = "check's own reads are seen by the user's dispatch mode"
_BACKWARD = "a warning that torch raises while backward runs names torch's line or gradviz's, not the user's"
_FACE = "torch.is_anomaly_enabled is a lambda without name and signature"
_AROUND = "a hook that looks at the stack sees gradviz's functions around the engine"
_EXPORT = "strict export fails at the hooks of the recording"
_COMPILED = "hooks for all modules order the inputs of a compiled graph otherwise"


def _everywhere(reason: str, check: str = "") -> dict[str, str]:
    return {**dict.fromkeys(_TO_THE_END, reason), "check": f"{reason}; {check}" if check else reason}


KNOWN: dict[str, dict[str, str]] = {
    VISIBLE: _everywhere(_FACE, f"{_MODE}, and torch.from_numpy is a wrapper"),
    "attention_fast_path": {"check": _MODE},
    "compiled_eagerly": _everywhere(_COMPILED),
    "encoder_early_stopping": {"check": _MODE},
    "exported": _everywhere(_EXPORT),
    "graphs_by_fx": {"check": "its reads are traced"},
    "own_anomaly_mode": {"check": _MODE},
    "own_loop_and_containers": {"check": _MODE},
    "pickles_and_copies": {"check": "torch.from_numpy cannot be pickled"},
    "printed_and_logged": {"check": _MODE},
    "profiled_ops": {"check": "a profiler counts check's own operations"},
    "scripted_and_traced": {"check": "a scripted module on the line of the loss ends it"},
    "sparse_and_complex": {"check": _MODE},
    "stack_depth": _everywhere(_AROUND, _MODE),
    "user_modes": {"check": _READS},
    "user_patches": {"check": _MODE},
    "warnings_everywhere": _everywhere(_BACKWARD, _MODE),
    "wrapper_subclass": {"check": _READS},
}
