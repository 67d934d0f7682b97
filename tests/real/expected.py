"""What programs of the corpus do not keep yet: promise and reason, by program. Strict: what is kept again is taken out."""

from __future__ import annotations

INFERRED = "inferred scopes do not follow residual connections, loops of cells and what has no parameter on one side"

EXPECTED: dict[str, dict[str, str]] = {
    "hypernetwork": {"scopes": INFERRED},
    "lora_finetune": {"scopes": INFERRED},
    "maml_fomaml_backward": {"scopes": INFERRED},
    "multitask_uncertainty": {"scopes": INFERRED},
    "seq2seq_attention": {"scopes": INFERRED},
    "spectral_weight_norm": {"scopes": INFERRED},
    "vqvae_ema": {"scopes": INFERRED},
    "encoder_decoder_checkpointed": {"scopes": INFERRED},
    "mixtral_experts": {"scopes": INFERRED},
}
