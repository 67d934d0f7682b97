from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class TrainArgs:
    steps: int = 3
    batch: int = 2
    seq: int = 12
    lr: float = 3e-4


def main(args=TrainArgs()):
    cfg = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    for step in range(args.steps):
        ids = torch.randint(0, 64, (args.batch, args.seq))
        out = model(input_ids=ids, labels=ids, use_cache=False)
        opt.zero_grad()
        out.loss.backward()
        opt.step()
        print(f"step {step} loss {out.loss.item():.4f}")


if __name__ == "__main__":
    main()
