"""What programs of the corpus do not keep: promise and reason, by program. Strict: what is kept again is taken out."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {
    "seq2seq_attention": {
        "body": "every step of the decoder reads all of the encoder's states, and the edges fill the page"
    },
    "hypernetwork": {
        "scopes": "a module beside its caller makes the weights: who calls whom is not in the registration"
    },
    "maml_fomaml_backward": {
        "scopes": "functional_call runs the model with weights that were computed, which belong to no module"
    },
}
