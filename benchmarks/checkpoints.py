"""What a checkpoint plan foretells against what applying it does: bytes held, and processor time of a step.

    python -m benchmarks.checkpoints [LAYERS]

Times a GPT of LAYERS blocks (6 unless told), plans for three budgets, applies each plan and measures again. Processor time, so that
other programs do not count; set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import torch

import gradviz
from gradviz.gradients import times
from gradviz.memory.checkpoint import Advice, StepTime
from gradviz.run.outputs import LiveOutputs
from tests.memory.test_checkpoint import GPT

STEPS = 15
"""Steps with the plan and as many without, one after the other."""


def main() -> int:
    """Print the table."""
    torch.manual_seed(0)
    model = GPT(layers=int(sys.argv[1]) if len(sys.argv) > 1 else 6, width=128)
    tokens = torch.randint(100, (8, 128))
    times.clock = time.process_time
    print("budget   modules   MiB foretold  measured   more ms foretold  measured   spread ms  of these  within twice")
    for part in (0.8, 0.5, 0.3):
        graph, step = timed(model, tokens)
        total = gradviz.saved(graph).total.held
        plan = gradviz.checkpoint_plan(graph, int(total * part), step)
        before, after = [], []
        for _ in range(STEPS):  # in turns, so that what else runs slows both
            before.append(seconds(model, tokens))
            undo = gradviz.apply_checkpoints(model, plan)
            after.append(seconds(model, tokens))
            held = held_bytes(model, tokens)
            undo()
        more = median(after) - median(before)
        error = (max(before) - min(before)) / 2
        print(
            f"{part:6.0%} {len(plan.steps):9} {plan.held / 2**20:14.2f} {held / 2**20:9.2f}{(plan.seconds or 0) * 1e3:18.1f} "
            f"{more * 1e3:9.1f} {step.spread * 1e3:11.1f} {error * 1e3:9.1f}  {'yes' if _near(plan, more, step) else 'no'}"
        )
    return 0


def _near(plan: Advice, more: float, step: StepTime) -> bool:
    return abs((plan.seconds or 0) - more) <= 2 * step.spread


def timed(model: GPT, tokens: torch.Tensor) -> tuple[gradviz.Graph, StepTime]:
    """The graph with times of modules, and the time of a step, as `--time` has them."""
    steps = []
    with gradviz.record() as recording:
        recording.use_clock(time.process_time)
        for _ in range(times.STEPS):
            loss = model(tokens)
            step = times.timed(LiveOutputs(loss, [{"model": model, "tokens": tokens}], "", recording=recording))
            loss.backward()  # type: ignore[no-untyped-call]
            steps.append(times.ended(step, True))
    return times.together(steps)


def held_bytes(model: GPT, tokens: torch.Tensor) -> int:
    """Bytes held for backward, without parameters."""
    return gradviz.saved(gradviz.walk(model(tokens), model=model, params={"tokens": tokens})).total.held


def seconds(model: GPT, tokens: torch.Tensor) -> float:
    """Processor time of one step."""
    start = time.process_time()
    model(tokens).backward()  # type: ignore[no-untyped-call]
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
