"""Tiny configurations of Hugging Face models, where `transformers` is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.inferred.case import Case

_SMALL = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 40,
    "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
_TEXT = {
    "BERT": ("BertForMaskedLM", {}),
    "RoBERTa": ("RobertaForSequenceClassification", {}),
    "ELECTRA": ("ElectraForTokenClassification", {"embedding_size": 16}),
    "ALBERT": ("AlbertForMaskedLM", {"embedding_size": 8}),
    "DistilBERT": ("DistilBertForMaskedLM", {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}),
    "GPT-2": ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 3, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {}),
    "OPT": ("OPTForCausalLM", {"ffn_dim": 32, "word_embed_proj_dim": 16}),
    "Llama (HF)": ("LlamaForCausalLM", {"num_key_value_heads": 2}),
    "Qwen2": ("Qwen2ForCausalLM", {"num_key_value_heads": 2}),
    "Mixtral": ("MixtralForCausalLM", {"num_key_value_heads": 2, "num_local_experts": 2}),
    "Mamba": ("MambaForCausalLM", {"state_size": 4}),
    "RWKV (HF)": ("RwkvForCausalLM", {"attention_hidden_size": 16}),
    "T5": ("T5ForConditionalGeneration", {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
                                           "decoder_start_token_id": 0}),
    "BART": (
        "BartForConditionalGeneration",
        {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    ),
}  # fmt: skip
_PICTURES = {
    "ViT": ("ViTForImageClassification", {**_SMALL, "image_size": 16, "patch_size": 4}),
    "ConvNeXt (HF)": ("ConvNextForImageClassification", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 2, 2, 1]}),
    "Swin (HF)": (
        "SwinForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4},
    ),
    "ResNet (HF)": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "layer_type": "basic"},
    ),
    "SegFormer": (
        "SegformerForImageClassification",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16],
         "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
    ),
}  # fmt: skip


def _made(name: str, extra: dict[str, Any]) -> Any:
    import transformers

    kind = getattr(transformers, name)
    return kind(kind.config_class(**extra)).train()


def _text(name: str, extra: dict[str, Any]) -> Case:
    def case() -> tuple[nn.Module, Callable[[], Tensor]]:
        model, tokens = _made(name, {**_SMALL, **extra}), torch.randint(2, 40, (2, 8))
        labels = (
            torch.tensor([0, 1])
            if "Sequence" in name
            else torch.zeros_like(tokens)
            if "Token" in name
            else tokens
        )
        return model, lambda: model(input_ids=tokens, labels=labels).loss

    return case


def _pictures(name: str, extra: dict[str, Any]) -> Case:
    def case() -> tuple[nn.Module, Callable[[], Tensor]]:
        model, size = _made(name, extra), extra.get("image_size", 32)
        return (
            model,
            lambda: (
                model(
                    pixel_values=torch.randn(2, 3, size, size),
                    labels=torch.tensor([0, 1]),
                ).loss
            ),
        )

    return case


CASES: dict[str, Case] = {}
if importlib.util.find_spec("transformers"):
    CASES.update((name, _text(*of)) for name, of in _TEXT.items())
    CASES.update((name, _pictures(*of)) for name, of in _PICTURES.items())
