"""Measures the gradients of what a script led to, while its tensors are alive, for the commands that show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gradviz.analysis.gradients.flow import GradientFlow
    from gradviz.capture.target import Live
    from gradviz.graph import Graph


run_custom_option = click.option(
    "--run-custom",
    is_flag=True,
    help="Call the backward of custom Functions, too. It may keep state, so the script's own run may change.",
)


def measured(live: Live, run_custom: bool = False) -> GradientFlow:
    """The gradients behind the outputs."""
    from gradviz.analysis.gradients.flow import measure

    attribution = live.recording.attribution(live.variables) if live.recording is not None else None
    flow = measure(
        live.outputs, variables=live.variables, title=live.title, attribution=attribution, run_custom=run_custom
    )
    return flow.with_names(live.names)


def with_backward(live: Live, run_custom: bool = False) -> Graph:
    """The graph behind the outputs, with its gradients and the order of backward, and what must be known of them."""
    flow = measured(live, run_custom)
    notes = (*live.notes, *(note for note in flow.notes if note not in live.notes))
    return replace(flow.graph, notes=notes)
