"""What programs of the corpus do not keep: promise and reason, by program. Strict: what is kept again is taken out."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {
    "hypernetwork": {
        "scopes": "a module makes the weights of convolutions that its caller runs: inference goes by who registered a parameter, "
        "and takes what is computed from it for a call of that module"
    },
    "maml_fomaml_backward": {
        "scopes": "functional_call runs the model with updated weights, which no module registered: only a recording sees that"
    },
}
