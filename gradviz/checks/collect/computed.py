"""What backward would compute: the gradients of all leaves, and the first nodes that
make them NaN or Inf.
"""

from __future__ import annotations

import torch

from gradviz.checks.call import BackwardCall, Gradients, LeafGradient
from gradviz.errors import GradvizError, reason_of
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph, stopped_note
from gradviz.graph import Graph
from gradviz.run.outputs import LiveOutputs
from gradviz.walker.walk import capture


def compute_gradients(
    call: BackwardCall, live: LiveOutputs, model: torch.nn.Module | None = None
) -> None:
    """Note what backward would compute, or why it is not computed: that takes no other
    finding away.
    """
    if all(root.node is None for root in call.graph.roots):
        return

    problem = _obstacle(call.graph)
    if not problem:
        try:
            walked = capture(live.outputs, model=model, variables=live.variables)
            flow = measure(open_graph(live.outputs, walked))
        except GradvizError as error:
            problem = str(error)
        except Exception as error:
            # out of memory, or an operation that a class of tensors does not have
            problem = f"computing them raised {reason_of(error)}"

    if problem:
        call.gradients = Gradients(problem=problem)
        return

    leaving = {
        measured.edge.consumer
        for measured in flow.edges
        if measured.size is not None and measured.size.nonfinite
    }
    arriving = {node for node, size in flow.incoming.items() if not size.nonfinite}
    call.gradients = Gradients(
        leaves=tuple(
            LeafGradient(leaf.node, leaf.norm, leaf.nonfinite) for leaf in flow.leaves
        ),
        # finite in, NaN or Inf out: that is where it starts
        nonfinite=tuple(node for node in flow.order if node in leaving & arriving),
        problem="; ".join(stopped_note(flow.graph, flow.stopped, flow.unmeasured)),
    )


def _obstacle(graph: Graph) -> str:
    """Why computing gradients would run code of the user's that may not bear it."""
    for node in graph.nodes:
        for slot in node.saved:
            if slot.state == "packed" and slot.packing != "offload":
                why = f"which would have to run ({slot.note})"
                return f"saved tensors are packed by a hook, {why}"
    return ""
