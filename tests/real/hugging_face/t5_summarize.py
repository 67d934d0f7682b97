import torch
from transformers import T5Config, T5ForConditionalGeneration

config = T5Config(
    vocab_size=64,
    d_model=32,
    d_kv=8,
    d_ff=48,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
    pad_token_id=0,
)
model = T5ForConditionalGeneration(config)
optimizer = torch.optim.Adam(params=model.parameters(), lr=1e-4)


def train(epoch, model, optimizer):
    model.train()
    for _ in range(3):
        ids, mask, y = torch.randint(1, 64, (2, 10)), torch.ones(2, 10, dtype=torch.long), torch.randint(1, 64, (2, 6))
        lm_labels = y.clone()
        lm_labels[0, -1] = -100
        outputs = model(input_ids=ids, attention_mask=mask, labels=lm_labels)
        loss = outputs[0]
        print(f"Epoch: {epoch}, Loss:  {loss.item()}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(0, model, optimizer)
