"""What does still disturb a script, by script and way, and why. Whoever mends it takes it out here."""

from __future__ import annotations

from tests.disturbance.journal import VISIBLE

_MODE = "check runs the script under a function mode"
_READS = "check's own reads are seen by the user's dispatch mode"
_BACKWARD = "a warning that torch raises while backward runs names torch's line or gradviz's, not the user's"
_FACE = "torch.is_anomaly_enabled is a lambda without name and signature"
_TO_THE_END = ("record", "render", "check", "tree", "tensors", "saved", "info")

KNOWN: dict[str, dict[str, str]] = {
    VISIBLE: {**dict.fromkeys(_TO_THE_END, _FACE), "check": f"{_FACE}; {_MODE}, and torch.from_numpy is a wrapper"},
    "attention_fast_path": {"check": _MODE},
    "encoder_early_stopping": {"check": _MODE},
    "user_modes": {"check": _READS},
    "warnings_everywhere": {**dict.fromkeys(_TO_THE_END, _BACKWARD), "check": f"{_BACKWARD}; {_MODE}"},
}
