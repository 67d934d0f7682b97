"""Leaky integrate-and-fire network, trained through time with a surrogate gradient."""

import torch
import torch.nn as nn


class SurrGradSpike(torch.autograd.Function):
    scale = 100.0  # controls steepness of surrogate gradient

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        out = torch.zeros_like(input)
        out[input > 0] = 1.0
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output / (SurrGradSpike.scale * torch.abs(input) + 1.0) ** 2


spike_fn = SurrGradSpike.apply
nb_inputs, nb_hidden, nb_outputs, nb_steps, batch_size = 20, 10, 2, 12, 8
alpha, beta = 0.8187, 0.9048

w1 = torch.empty((nb_inputs, nb_hidden), requires_grad=True)
torch.nn.init.normal_(w1, mean=0.0, std=0.4)
w2 = torch.empty((nb_hidden, nb_outputs), requires_grad=True)
torch.nn.init.normal_(w2, mean=0.0, std=0.4)


def run_snn(inputs):
    h1 = torch.einsum("abc,cd->abd", (inputs, w1))
    syn, mem = torch.zeros(batch_size, nb_hidden), torch.zeros(batch_size, nb_hidden)
    mem_rec, spk_rec = [], []
    for t in range(nb_steps):
        mthr = mem - 1.0
        out = spike_fn(mthr)
        rst = out.detach()  # We do not want to backprop through the reset
        new_syn = alpha * syn + h1[:, t]
        new_mem = (beta * mem + syn) * (1.0 - rst)
        mem_rec.append(mem)
        spk_rec.append(out)
        mem, syn = new_mem, new_syn
    mem_rec, spk_rec = torch.stack(mem_rec, dim=1), torch.stack(spk_rec, dim=1)
    # Readout layer
    h2 = torch.einsum("abc,cd->abd", (spk_rec, w2))
    flt, out = torch.zeros((batch_size, nb_outputs)), torch.zeros((batch_size, nb_outputs))
    out_rec = [out]
    for t in range(nb_steps):
        new_flt = alpha * flt + h2[:, t]
        new_out = beta * out + flt
        flt, out = new_flt, new_out
        out_rec.append(out)
    return torch.stack(out_rec, dim=1), [mem_rec, spk_rec]


params = [w1, w2]
optimizer = torch.optim.Adam(params, lr=2e-3, betas=(0.9, 0.999))
log_softmax_fn, loss_fn = nn.LogSoftmax(dim=1), nn.NLLLoss()
loss_hist = []
for e in range(3):
    x_data, y_data = (torch.rand(batch_size, nb_steps, nb_inputs) > 0.7).float(), torch.randint(0, 2, (batch_size,))
    output, recs = run_snn(x_data)
    _, spks = recs
    m, _ = torch.max(output, 1)
    log_p_y = log_softmax_fn(m)
    reg_loss = 1e-5 * torch.sum(spks) + 1e-5 * torch.mean(torch.sum(torch.sum(spks, dim=0), dim=0) ** 2)
    loss_val = loss_fn(log_p_y, y_data) + reg_loss
    optimizer.zero_grad()
    loss_val.backward()
    optimizer.step()
    loss_hist.append(loss_val.item())
print(loss_hist)
