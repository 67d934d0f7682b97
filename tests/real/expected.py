"""What programs of the corpus do not keep: promise and reason, by program. Strict: what is kept again is taken out."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {
    "hypernetwork": {
        "scopes": "a module beside its caller makes the weights: who calls whom is not in the registration"
    },
    "lora_finetune": {
        "scopes": "what follows the adapter is a factor and a sum, which any module around could have made"
    },
    "maml_fomaml_backward": {
        "scopes": "functional_call runs the model with weights that were computed, which belong to no module"
    },
    "spectral_weight_norm": {"scopes": "transposing a parametrized weight looks like a part of the parametrization"},
    "vqvae_ema": {"scopes": "losses inside the quantizer hold no parameter"},
    "mixtral_experts": {"scopes": "gathering and adding of experts holds no parameter"},
}
