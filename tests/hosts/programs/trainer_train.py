"""Trainer of transformers: a model that is made from a configuration, with a layer too many."""

import tempfile

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"input_ids": torch.arange(6) + i, "attention_mask": torch.ones(6).long(), "labels": torch.tensor(i % 2)}


class Bert(BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.spare = nn.Linear(4, 4)


def main():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=64, max_position_embeddings=16, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
        arguments = TrainingArguments(folder, max_steps=4, per_device_train_batch_size=4, use_cpu=True, **quiet)
        trainer = Trainer(model=Bert(config), args=arguments, train_dataset=Rows())
        trainer.remove_callback(PrinterCallback)
        print("loss", trainer.train().training_loss.hex())  # backward


main()
