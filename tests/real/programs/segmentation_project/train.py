"""Entry point of a small project: `python train.py --epochs 1`. Models and helpers lie beside it."""

import argparse
import logging

import torch
from models import build_model
from trainer import Trainer
from utils.data import RandomShapes
from utils.losses import FocalLoss


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description="Train a segmentation network")
    parser.add_argument("--arch", default="fpn", choices=["fpn", "plain"])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(args.seed)
    loader = torch.utils.data.DataLoader(RandomShapes(12), batch_size=args.batch_size, num_workers=0)
    trainer = Trainer(build_model(args.arch), FocalLoss(gamma=2.0), lr=args.lr)
    trainer.fit(loader, args.epochs)


if __name__ == "__main__":
    main()
