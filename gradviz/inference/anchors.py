"""Which operations work with parameters, and the modules that these belong to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.graph.origins import Ownership, Registered, around, common
from gradviz.inference.layers import ELEMENTWISE, PARAMETRIZED, PRODUCTS, VIEWS, stem_of

_RESHAPING = ELEMENTWISE | frozenset(
    (
        "Sqrt",
        "Log",
        "Softplus",
        "Softmax",
        "LinalgVectorNorm",
        "Norm",
        "WeightNormInterface",
        "Cat",
        "Repeat",
    )
)
_LAYERS = frozenset(("Convolution", "ThnnConv2D", "Embedding", "EmbeddingBag"))


class Anchors(NamedTuple):
    """By node id: the module whose parameters an operation works with, or None; and the
    leaves that they are.
    """

    module: list[int | None]
    uses: list[tuple[int, ...]]


class Anchoring:
    """Finds the anchors of one graph. `inputs`: by node those that it takes its inputs
    from.
    """

    def __init__(
        self, graph: Graph, ownership: Ownership, inputs: Sequence[Sequence[int]]
    ) -> None:
        self._graph, self._inputs = graph, inputs
        self._modules, self._owners = ownership.modules, ownership.owners
        self._stems = [*map(stem_of, graph.ops)]

    def anchors(self) -> Anchors:
        """Operations that consume parameters, directly or through what is computed from
        parameters alone, as views of them are.

        With parameters of several modules, an operation belongs to the innermost module
        around all of them.
        """
        uses, is_weight = self._uses()
        turned = self._turned_weights()
        module: list[int | None] = []
        for node, leaves in enumerate(uses):
            owners = [self._owner(leaf, node) for leaf in leaves]
            owner = common(self._modules, owners) if owners else None
            if owner is not None:
                is_made = is_weight[node] and node not in turned
                owner = self._caller(owner, node, is_made)
            module.append(owner)

        return Anchors(module, uses)

    def _owner(self, leaf: int, node: int) -> int:
        """The module that holds a parameter; of several the innermost that makes such
        operations: an embedding looks up, the others multiply.
        """
        modules, owners, looks_up = (
            self._modules,
            self._owners[leaf],
            self._looks_up(node),
        )
        fitting = [owner for owner in owners if _looks_up(modules[owner]) == looks_up]
        return max(fitting or owners, key=lambda owner: len([*around(modules, owner)]))

    def _looks_up(self, node: int) -> bool:
        return self._stems[node].startswith("Embedding")

    def _caller(self, owner: int, node: int, is_weight: bool) -> int | None:
        """The module that ran an operation on parameters of `owner`, which another one
        may have read.

        A list of parametrizations makes weights, and the module around it works with
        them. An embedding only looks up.
        """
        for module in around(self._modules, owner):
            base = self._modules[module].base
            weighs_only = base == PARAMETRIZED or (
                base == "Embedding" and not self._looks_up(node)
            )
            if is_weight or not weighs_only:
                return module
        return None

    def _turned(self, node: int) -> list[int]:
        """The inputs of an operation that are transpositions."""
        return [maker for maker in self._inputs[node] if self._stems[maker] == "T"]

    def _turned_weights(self) -> set[int]:
        """Transpositions right before a product of matrices, which a linear layer makes
        of any weight, parametrized or not.
        """
        turned: set[int] = set()
        for node, stem in enumerate(self._stems):
            if stem in PRODUCTS:
                turned.update(self._turned(node))
        return turned

    def _uses(self) -> tuple[list[tuple[int, ...]], list[bool]]:
        """The leaves that each operation works with, and whether what it makes is a
        parameter again.
        """
        uses, origin = self._origins()
        # whether something else is computed with it
        reaches = bytearray(len(self._stems))
        for node in self._graph.order:
            reaches[node] |= bool(uses[node]) and not origin[node]
            if reaches[node]:
                for producer in self._inputs[node]:
                    reaches[producer] |= bool(origin[producer])
        reaching = [used if reaches[node] else () for node, used in enumerate(uses)]
        return reaching, [*map(bool, origin)]

    def _origins(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The leaves that each operation works with, and those that it computes a
        parameter from again.
        """
        # of what is computed from parameters alone
        origin: list[tuple[int, ...]] = [()] * len(self._stems)
        uses: list[tuple[int, ...]] = [()] * len(self._stems)
        parametrized = set()
        for leaf, owners in self._owners.items():
            if {self._modules[owner].base for owner in owners} <= {PARAMETRIZED}:
                parametrized.add(leaf)

        for node in reversed(self._graph.order):
            if node in self._owners:
                origin[node] = (node,)
            sources = [origin[producer] for producer in self._inputs[node]]
            used = tuple(dict.fromkeys(chain.from_iterable(sources)))
            if not used:
                continue
            alone = all(sources)
            in_list = (
                alone and parametrized.issuperset(used) and not self._is_layer(node)
            )
            if self._is_number(node) and not in_list:
                continue  # a penalty on weights is no layer
            uses[node] = used
            if in_list or (alone and self._reshapes(node)):
                origin[node] = used

        return uses, origin

    def _is_layer(self, node: int) -> bool:
        """Whether an operation works with a finished weight: a convolution, a look-up, a
        product with what was turned for it.
        """
        stem = self._stems[node]
        is_product = stem in PRODUCTS and self._graph.nodes[node].none_inputs > 0
        return stem in _LAYERS or (is_product and bool(self._turned(node)))

    def _reshapes(self, node: int) -> bool:
        """Whether an operation makes a parameter of parameters; any other one computes
        with data, even if no gradient goes there.
        """
        stem, takes_data = self._stems[node], self._graph.nodes[node].none_inputs
        return stem in VIEWS or (stem in _RESHAPING and not takes_data)

    def _is_number(self, node: int) -> bool:
        outputs = self._graph.nodes[node].outputs
        return bool(outputs) and outputs[0] is not None and outputs[0].shape == ()


def _looks_up(module: Registered) -> bool:
    steps = module.steps or ()
    return module.base == "Embedding" or any(name == "embedding" for _, name in steps)
