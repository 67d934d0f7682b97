"""A Lightning callback that draws and checks the graph of the first training step."""

from typing import Any

import lightning
import torch

import gradviz


class GraphOfFirstStep(lightning.Callback):
    """Writes graph.svg, and prints what `gradviz.check` finds."""

    def __init__(self) -> None:
        self.recording: Any = None

    def on_train_batch_start(self, trainer: Any, module: Any, *rest: Any) -> None:
        if trainer.global_step == 0:
            self.recording = gradviz.record()
            self.recording.__enter__()

    def on_before_backward(self, trainer: Any, module: Any, loss: Any) -> None:
        if self.recording is not None:
            self.recording.graph(loss, model=module).save("graph.svg", force=True)
            print(gradviz.check(loss, model=module, recording=self.recording))
            self.recording.__exit__(None, None, None)
            self.recording = None


class Regression(lightning.LightningModule):
    """Something to train."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(32, 4))
trainer = lightning.Trainer(
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    callbacks=[GraphOfFirstStep()],
)
trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=8))
