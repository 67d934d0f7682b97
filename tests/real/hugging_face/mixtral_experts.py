import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
model = MixtralForCausalLM(
    MixtralConfig(
        vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32, output_router_logits=True,
    )
)  # fmt: skip
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(3):
    ids = torch.randint(0, 48, (2, 10))
    out = model(ids, labels=ids)
    out.loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, out.loss.item(), out.aux_loss.item())
