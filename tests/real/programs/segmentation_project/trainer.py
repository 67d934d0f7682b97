import logging
import time

import torch

logger = logging.getLogger(__name__)


class AverageMeter:
    """Computes and stores the average and current value"""

    def __init__(self):
        self.sum = self.count = self.val = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class Trainer:
    def __init__(self, model, criterion, lr):
        self.model = model
        self.criterion = criterion
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.99**step)
        self.global_step = 0

    def training_step(self, batch):
        images, masks = batch["image"], batch["mask"]
        outputs = self.model(images)
        loss = self.criterion(outputs["out"], masks)
        if "aux" in outputs:
            loss = loss + 0.4 * self.criterion(outputs["aux"], masks)
        return loss

    def fit(self, loader, epochs):
        losses, batch_time = AverageMeter(), AverageMeter()
        for epoch in range(epochs):
            self.model.train()
            end = time.time()
            for i, batch in enumerate(loader):
                loss = self.training_step(batch)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                self.scheduler.step()
                losses.update(loss.item(), len(batch["image"]))
                batch_time.update(time.time() - end)
                end = time.time()
                self.global_step += 1
                logger.info(
                    "epoch %d [%d/%d] loss %.4f (%.4f) norm %.3f",
                    epoch,
                    i,
                    len(loader),
                    losses.val,
                    losses.avg,
                    grad_norm,
                )
