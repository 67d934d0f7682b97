"""What programs of the corpus do not keep: promise and reason, by program. Strict: what is kept again is taken out."""

from __future__ import annotations

_CLOSED = "a loop, or a stretch of stages, stays closed, though the page might hold one turn of it"

EXPECTED: dict[str, dict[str, str]] = {
    "hypernetwork": {
        "scopes": "a module makes the weights of convolutions that its caller runs: inference goes by who registered a parameter, "
        "and takes what is computed from it for a call of that module"
    },
    "maml_fomaml_backward": {
        "scopes": "functional_call runs the model with updated weights, which no module registered: only a recording sees that"
    },
    "actor_critic_agent": {"body": _CLOSED},
    "densenet_growth": {"body": _CLOSED},
    "efficientnet_mbconv": {"body": _CLOSED},
    "reinforce": {"body": _CLOSED},
    "bart_seq2seq": {"body": _CLOSED},
    "convnext_images": {"body": _CLOSED},
    "spiking_surrogate": {"body": _CLOSED},
    "rwkv_lm": {"body": _CLOSED},
    "segmentation_project": {"labels": "a wire runs through the title of the loss's frame"},
}
