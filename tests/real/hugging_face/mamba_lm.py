import torch
from transformers import MambaConfig, MambaForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()  # no fast kernels on CPU, we know
model = MambaForCausalLM(MambaConfig(vocab_size=48, hidden_size=16, state_size=4, num_hidden_layers=2, conv_kernel=3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for it in range(3):
    x = torch.randint(0, 48, (2, 8))
    loss = model(x, labels=x).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, float(loss))
