"""Anchors: the operations that work with parameters, and so tell which module ran them."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.graph.origins import Ownership, around, common
from gradviz.inference.layers import PARAMETRIZED, PRODUCTS, VIEWS, stem_of
from gradviz.inference.order import ForwardOrder

_COMBINING = frozenset((
    "Mul", "Add", "Sub", "Rsub", "Div", "Pow", "Tanh", "Sigmoid", "Erf", "Exp", "Relu", "Clamp", "Neg", "Gelu", "Silu", "Sqrt",
    "Log", "Softplus", "Softmax", "LinalgVectorNorm", "Norm", "WeightNormInterface", "Cat", "Repeat",
))  # fmt: skip
"""Operations that make a weight of parameters alone."""
_LAYERS = frozenset(("Convolution", "ThnnConv2D", "Embedding", "EmbeddingBag"))


class Anchor(NamedTuple):
    """An operation that works with parameters: its position, its module, and the name
    that the module has for the first of the parameters. The same operation on the same
    parameters has the same key.
    """

    position: int
    module: int
    name: str
    key: Hashable


def find_anchors(
    graph: Graph, ownership: Ownership, order: ForwardOrder
) -> list[Anchor]:
    """The anchors of a graph, in the order in which they ran."""
    return _Anchoring(graph, ownership, order).anchors()


class _Weight(NamedTuple):
    """A parameter, or what is computed from parameters alone, as views of them are:
    `leaf` is the first of these parameters. All that is computed from the same
    parameters has the same id.
    """

    id: int
    leaf: int
    owner: int | None
    lookup_owner: int | None  # whose it is where rows of it are looked up
    in_list: bool  # whether only lists of parametrizations hold it


class _Anchoring:
    def __init__(self, graph: Graph, ownership: Ownership, order: ForwardOrder) -> None:
        self._graph, self._order, self._inputs = graph, order, order.inputs
        self._modules, self._names = ownership.modules, ownership.names
        self._stems = [*map(stem_of, graph.ops)]
        self._weights: dict[int, _Weight] = {}  # by the node that makes it
        self._joint_ids: dict[tuple[int, ...], int] = {}
        for leaf, owners in ownership.owners.items():
            in_list = all(self._modules[i].base == PARAMETRIZED for i in owners)
            owner, lookup_owner = self._owners(owners)
            self._weights[leaf] = _Weight(leaf, leaf, owner, lookup_owner, in_list)

    def _owners(self, owners: Sequence[int]) -> tuple[int, int]:
        """Of the modules that hold a parameter the innermost that multiplies, and the
        innermost that looks up, as an embedding does.
        """
        embeddings = [i for i in owners if self._modules[i].base == "Embedding"]
        others = [i for i in owners if self._modules[i].base != "Embedding"]
        depth = {i: len([*around(self._modules, i)]) for i in owners}
        multiplies = max(others or owners, key=depth.__getitem__)
        return multiplies, max(embeddings or owners, key=depth.__getitem__)

    def anchors(self) -> list[Anchor]:
        """An operation belongs to the module that holds the parameters which it works
        with; of several modules, to the innermost around all of them.
        """
        used, names = self._used(), self._names
        needed = self._needed(used)
        turned = self._turned_weights()
        anchors = []
        for position, node in enumerate(self._order.nodes):
            if node not in needed:
                continue
            weight, makes_weight = used[node], node in self._weights
            owner = self._owner(weight, node)
            if owner is not None and (not makes_weight or node in turned):
                owner = self._caller(owner, node)
            if owner is not None:
                name, key = names.get(weight.leaf, ""), (self._stems[node], weight.id)
                anchors.append(Anchor(position, owner, name, key))

        return anchors

    def _used(self) -> dict[int, _Weight]:
        """By node the weight that it works with, several as one. Notes which nodes make
        weights.
        """
        used: dict[int, _Weight] = {}
        for node in reversed(self._graph.order):
            sources = [self._weights.get(maker) for maker in self._inputs[node]]
            weights = {weight.id: weight for weight in sources if weight is not None}
            if not weights:
                continue
            weight = self._joined([*weights.values()], node)
            is_alone = None not in sources
            is_in_list = is_alone and weight.in_list and not self._is_layer(node)
            if self._is_number(node) and not is_in_list:
                continue  # a penalty on weights is no layer
            used[node] = weight
            if is_in_list or (is_alone and self._makes_weight(node)):
                self._weights[node] = weight
        return used

    def _joined(self, weights: Sequence[_Weight], node: int) -> _Weight:
        if len(weights) == 1:
            return weights[0]
        ids = tuple(weight.id for weight in weights)
        owners = [self._owner(weight, node) for weight in weights]
        known = [owner for owner in owners if owner is not None]
        is_known = len(known) == len(owners)
        owner = common(self._modules, known) if is_known else None
        return _Weight(
            self._joint_ids.setdefault(ids, -1 - len(self._joint_ids)),
            min(weight.leaf for weight in weights),
            owner,
            owner,
            all(weight.in_list for weight in weights),
        )

    def _needed(self, used: Container[int]) -> set[int]:
        """The nodes that work with weights, without those that make a weight with which
        nothing works.
        """
        needed: set[int] = set()
        for node in self._graph.order:
            if node in used and node not in self._weights:
                needed.add(node)
            if node in needed:
                makers = self._inputs[node]
                needed.update(maker for maker in makers if maker in self._weights)
        return needed

    # -- whose an operation is -----------------------------------------------------

    def _owner(self, weight: _Weight, node: int) -> int | None:
        return weight.lookup_owner if self._looks_up(node) else weight.owner

    def _caller(self, owner: int, node: int) -> int | None:
        """The module that ran an operation on a weight of `owner`, which another one may
        have read: a list of parametrizations only makes weights, an embedding only
        looks up.
        """
        no_callers = {PARAMETRIZED, None if self._looks_up(node) else "Embedding"}
        outers = around(self._modules, owner)
        return next(
            (i for i in outers if self._modules[i].base not in no_callers), None
        )

    def _looks_up(self, node: int) -> bool:
        return self._stems[node].startswith("Embedding")

    # -- what an operation does to weights -----------------------------------------

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

    def _is_layer(self, node: int) -> bool:
        """Whether an operation works with a finished weight: a convolution, a look-up, a
        product with what was turned for it.
        """
        stem = self._stems[node]
        is_product = stem in PRODUCTS and self._graph.nodes[node].none_inputs > 0
        return stem in _LAYERS or (is_product and bool(self._turned(node)))

    def _makes_weight(self, node: int) -> bool:
        """Whether an operation makes a weight of weights; any other one computes with
        data, even if no gradient goes there.
        """
        stem, takes_data = self._stems[node], self._graph.nodes[node].none_inputs
        return stem in VIEWS or (stem in _COMBINING and not takes_data)

    def _is_number(self, node: int) -> bool:
        outputs = self._graph.nodes[node].outputs
        return bool(outputs) and outputs[0] is not None and outputs[0].shape == ()
