"""The tensors without gradient that ops were given: one record for what is one tensor,
as the graph, the code or the caller's variables tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from gradviz.graph import Data, TensorInfo
from gradviz.graph.origins import common
from gradviz.walker import private
from gradviz.walker.names import Names
from gradviz.walker.places import Operand, Places
from gradviz.walker.saved import Input
from gradviz.walker.tensors import Storages, base_of, tensor_info
from gradviz.wording import clip

LONGEST = 40
"""Letters of a title."""
_UNSEEN = TensorInfo(None, "unknown", "unknown")


@dataclass(slots=True, eq=False)
class _Entity:
    """One tensor in the making. `uses`: the entry of each node that takes it; `scopes`:
    the module calls whose code has it, `functions` those of functions.
    """

    names: tuple[str, ...]
    inner: bool
    operand: Operand | None = None
    tensor: torch.Tensor | None = None
    storage: int | None = None
    uses: dict[int, int | None] = field(default_factory=dict)
    scopes: set[int | None] = field(default_factory=set)
    functions: set[int | None] = field(default_factory=set)


class DataReader:
    """Collects data. `names` are those of the caller's variables."""

    def __init__(self, names: Names, storages: Storages, places: Places) -> None:
        self._names, self._storages, self._places = names, storages, places
        # entries without gradient that are no data
        self.numbers: Counter[int] = Counter(places.numbers)
        self._entities: list[_Entity] = []
        self._by_key: dict[Hashable, _Entity] = {}
        self._by_tensor: dict[Hashable, _Entity] = {}
        self._given: dict[Hashable, torch.Tensor] = {}
        for argument in places.arguments.values():
            operand = argument.operand
            if operand is not None and operand.value is not None:
                self._given.setdefault(operand.key, operand.value)

    def read(
        self, saved: Iterable[Input], operands: Mapping[int, Sequence[Operand]]
    ) -> None:
        """Add what ops saved, and what the code gave them."""
        named = set[tuple[int, int]]()
        kept = list(saved)
        slots: dict[tuple[int, str], list[str]] = {}
        for _, slot, node in kept:
            slots.setdefault((node, _list(slot)), []).append(slot)
        for tensor, slot, node in kept:
            some = operands.get(node, ())
            operand = _of_slot(some, slot, slots[node, _list(slot)])
            if operand is None:
                self._add(node, None, *self._of_view(node, tensor, some), slot)
                continue
            named.add((node, id(operand)))
            known = None if self._is_reshaped(tensor, operand) else tensor
            self._add(node, operand.position, known, operand, slot)

        for node, several in operands.items():
            for operand in several:
                living = self._living(operand)
                is_tensor = living is not None or not operand.is_doubtful
                if (
                    is_tensor
                    and (node, id(operand)) not in named
                    and _is_sure(operand, several)
                ):
                    self._add(node, operand.position, living, operand, "")

    def read_calls(self) -> None:
        """Add what calls were given that, of all that was added, no op of them takes."""
        taken = Counter(node for one in self._entities for node in one.uses)
        for nodes, free, operand in self._places.calls:
            living = self._living(operand)
            # what is known to be taken elsewhere is not given to the first op
            node = next((one for one in free if free[one] > taken[one]), None)
            is_known = operand.key in self._by_key or id(living) in self._by_tensor
            if (living is None and operand.is_doubtful) or (
                node is None and not is_known
            ):
                continue
            entity = self._entity(living, operand, "")
            if node is not None and entity.uses.keys().isdisjoint(nodes):
                taken[node] += 1
                self.numbers.pop(node, None)
                entity.uses[node] = None

    def _of_view(
        self, node: int, tensor: torch.Tensor, operands: Sequence[Operand]
    ) -> tuple[torch.Tensor | None, Operand | None]:
        """What the code gave an op of which a tensor may be a view: einsum, or one in a
        module that was given a part of a larger tensor, which may be gone.
        """
        base, owner = base_of(tensor), self._owner(tensor)
        if len(operands) == 1 and not operands[0].slot and owner is not tensor:
            return owner, operands[0]
        is_part = base is not None and base.numel() > tensor.numel()
        if not is_part or self._names.leaf(tensor):
            return tensor, None
        for living in self._places.module_inputs.get(node, ()):
            # only a view of the same memory has a place in it: no sparse one
            is_beside = base_of(living) is base and living.numel() == tensor.numel()
            if is_beside and living.storage_offset() == tensor.storage_offset():
                return living, None
        operand = self._places.passed.get(node)
        return (None, operand) if operand is not None else (tensor, None)

    def add_argument(self, node: int, tensor: torch.Tensor) -> None:
        """A node of a module takes what the module was given."""
        self._add(node, None, tensor, None, "")

    def taken(self) -> dict[int, set[int]]:
        """The identities of the tensors that each node takes, of those that are known."""
        taken: dict[int, set[int]] = {}
        for entity in self._entities:
            for node in entity.uses:
                taken.setdefault(node, set()).add(id(entity.tensor))
        return taken

    def tensors(self) -> list[torch.Tensor]:
        """All that are known as tensors."""
        tensors = (entity.tensor for entity in self._entities)
        return [tensor for tensor in tensors if tensor is not None]

    def records(self) -> tuple[Data, ...]:
        """What was collected, with what is computed from what."""
        self._entities = [entity for entity in self._entities if entity.names]
        # a variable is one also where the value of the last turn is still there
        inner = {_variable(entity) for entity in self._entities if entity.inner} - {()}
        for entity in self._entities:
            entity.inner |= _variable(entity) in inner
        # a source may be data that no op takes: the list grows while it is read
        sources = [self._sources(entity.operand) for entity in self._entities]
        place = {id(entity): i for i, entity in enumerate(self._entities)}
        of = [{place[id(one)] for one in some} for some in sources]
        return tuple(
            # what is one of them was given beside the others
            self._record(entity, some if i not in some else set())
            for i, (entity, some) in enumerate(zip(self._entities, of))
        )

    def _record(self, entity: _Entity, of: set[int]) -> Data:
        operand = entity.operand
        nodes = tuple(sorted(entity.uses))
        is_known = operand is not None and (bool(of) or not operand.of)
        functions = (
            entity.functions if len(entity.functions) == 1 and is_known else set()
        )
        return Data(
            entity.names,
            tensor_info(entity.tensor) if entity.tensor is not None else _UNSEEN,
            nodes,
            entity.storage,
            entity.inner,
            operand.text if operand is not None else "",
            tuple(entity.uses[node] for node in nodes),
            tuple(sorted(of)),
            self._home(entity.scopes) if entity.inner and entity.scopes else None,
            next(iter(functions), None) if entity.inner else None,
        )

    def _home(self, scopes: set[int | None]) -> int:
        """The innermost module call around all of these, -1 where there is none."""
        calls = [scope for scope in scopes if scope is not None and scope >= 0]
        is_inside = len(calls) == len(scopes)
        home = common(self._places.scopes, calls) if is_inside else None
        return -1 if home is None else home

    # -- one tensor --------------------------------------------------------------------

    def _add(
        self,
        node: int,
        position: int | None,
        tensor: torch.Tensor | None,
        operand: Operand | None,
        slot: str,
    ) -> None:
        if tensor is not None and not _is_data(tensor):
            self.numbers[node] += position is not None
            return
        entity = self._entity(tensor, operand, slot)
        entity.uses.setdefault(node, position)

    def _entity(
        self, tensor: torch.Tensor | None, operand: Operand | None, slot: str
    ) -> _Entity:
        written = operand if operand is not None else self._argument(tensor)
        if tensor is not None and written is None:
            tensor = self._owner(tensor)
            written = self._argument(tensor)
        entity = self._known(tensor, written)
        if entity is None:
            entity = self._new(tensor, written, slot)
        is_inside = entity.operand is not None and entity.operand.is_result
        if tensor is not None and (entity.tensor is None or (is_inside and written)):
            entity.tensor = tensor
            entity.storage = self._storages.known(tensor)
            names = self._called(tensor, written)
            if names:
                entity.names, entity.inner = names, False
        if entity.operand is None:
            entity.operand = written
        if tensor is not None:
            self._by_tensor.setdefault(id(tensor), entity)
        if written is not None:
            entity.scopes.add(written.scope)
            entity.functions.add(written.function)
            self._by_key.setdefault(written.key, entity)
        return entity

    def _known(
        self, tensor: torch.Tensor | None, operand: Operand | None
    ) -> _Entity | None:
        if tensor is not None and id(tensor) in self._by_tensor:
            return self._by_tensor[id(tensor)]
        entity = self._by_key.get(operand.key) if operand is not None else None
        other = entity.tensor if entity is not None else None
        if other is None or tensor is None:
            return entity
        # two that were given as one: `(h0, c0)`
        names = [name for one in (other, tensor) for name in self._names.leaf(one)[:1]]
        if len(names) == 2 and all(map(str.isidentifier, names)):
            return None
        # computed twice: two tensors of one value, but for what was changed in between
        return entity if other.shape == tensor.shape else None

    def _new(
        self, tensor: torch.Tensor | None, operand: Operand | None, slot: str
    ) -> _Entity:
        names = self._called(tensor, operand) if tensor is not None else ()
        inner = False
        if not names and operand is not None:
            names, inner = (clip(operand.text, LONGEST),), operand.inner
        if not names and tensor is not None:
            names, inner = self._borrowed(tensor)
        # where the code is known, what it does not name torch has made for itself
        entity = _Entity(names or (() if self._places.program else (slot,)), inner)
        self._entities.append(entity)
        return entity

    def _called(self, tensor: torch.Tensor, operand: Operand | None) -> tuple[str, ...]:
        """What the caller calls a tensor: `x`, of several turns in one list, rather than
        `batches[0][0]`. What a module has of its own is called in the module.
        """
        names = self._names.leaf(tensor)
        if operand is not None and operand.is_result:
            return ()  # what the caller calls it came later
        if operand is None or not names or names[0].isidentifier():
            return names
        if operand.is_own:
            return ()
        is_variable = operand.text.isidentifier() and operand.scope == -1
        return (operand.text,) if is_variable else names

    def _is_reshaped(self, tensor: torch.Tensor, operand: Operand) -> bool:
        """Whether an op saved a view that has another shape: one that repeats a variable,
        or gives an index one dimension more, as `log_prob` does; of a target in three
        dimensions, as `cross_entropy` makes it.
        """
        if tensor.layout is not torch.strided or self._names.leaf(tensor):
            return False
        if operand.slot == "target" and tensor.dim() == 3 and tensor.shape[1] == 1:
            return True
        base = base_of(tensor)
        is_plain = "(" not in operand.text and "None" not in operand.text
        if operand.slot == "index" and base is not None and is_plain:
            return base.dim() != tensor.dim()
        repeats = 0 in tensor.stride() and tensor.numel() > 1
        return repeats and operand.text.isidentifier()

    def _owner(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a view without a name counts for, where nothing tells what the code gave."""
        base = base_of(tensor)
        if base is None or self._names.leaf(tensor):
            return tensor
        if self._names.leaf(base):
            return base
        passed = self._places.arguments
        return base if id(base) in passed and id(tensor) not in passed else tensor

    def _borrowed(self, tensor: torch.Tensor) -> tuple[tuple[str, ...], bool]:
        """The name of the parameter that data was passed as, else of what it shares its
        memory with. With it, whether it is only known in a module.
        """
        argument = self._places.arguments.get(id(tensor))
        if argument is not None:
            return (argument.name,), argument.inner
        storage = self._storages.known(tensor)
        names = self._storages.records[storage].names if storage is not None else ()
        return names, not names

    def _argument(self, tensor: torch.Tensor | None) -> Operand | None:
        """What the code gave a module that was called with this."""
        argument = self._places.arguments.get(id(tensor))
        return argument.operand if argument is not None else None

    def _living(self, operand: Operand) -> torch.Tensor | None:
        """The tensor of an operand that no op saved, where something still holds it."""
        if operand.value is not None:
            return operand.value
        if operand.key in self._given:
            return self._given[operand.key]
        tensor = self._names.called(operand.text) if operand.stays else None
        return tensor if tensor is not None and _is_data(tensor) else None

    def _sources(self, operand: Operand | None) -> list[_Entity]:
        """What an operand is computed from, also by variables that nobody holds, if they
        are computed from data alone. Some of it would say that it is all, but for what
        the text begins with: `x[i]`.
        """
        sources = operand.of if operand is not None else ()
        every = [self._of(source) for source in sources]
        if operand is None or not all(every):
            is_begun = operand is not None and operand.text.startswith(sources[0].text)
            every = every if is_begun and every[0] else []
        return [one for some in every for one in some]

    def _of(self, operand: Operand) -> list[_Entity]:
        known = self._source(operand)
        if known is not None:
            return [known]
        every = [self._of(source) for source in operand.of]
        return [one for some in every for one in some] if all(every) else []

    def _source(self, operand: Operand) -> _Entity | None:
        """What an expression is computed from: data that ops take, or that lives."""
        entity = self._by_key.get(operand.key)
        if entity is not None:
            return entity
        tensor = self._living(operand)
        is_known = _is_data(tensor) if tensor is not None else operand.is_mask
        return self._entity(tensor, operand, "") if is_known else None


def _variable(entity: _Entity) -> tuple[Hashable, ...]:
    """The variable that an operand is, whatever it holds; () where it is none."""
    operand = entity.operand
    if operand is None or not operand.text.isidentifier():
        return ()
    key, is_named = operand.key, (operand.text,) == entity.names
    # the last part of what its value comes from is the turn
    is_known = is_named and isinstance(key, tuple)
    return (operand.text, *key[1][:-1]) if is_known else ()  # type: ignore[index]


def _is_data(tensor: torch.Tensor) -> bool:
    """No Python number, and not empty; a frozen parameter is a part of its module."""
    if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
        return False
    is_empty = tensor.layout is torch.strided and 0 in tensor.shape
    return not is_empty and not private.is_number(tensor)


def _list(slot: str) -> str:
    """What a slot is called, without its place in a list."""
    return slot.partition("[")[0]


def _of_slot(
    operands: Sequence[Operand], slot: str, slots: Sequence[str]
) -> Operand | None:
    """The operand that a node saved in one of the slots of a list."""
    some = [one for one in operands if _list(one.slot) == _list(slot)]
    if len(some) == len(slots):
        return some[slots.index(slot)]
    return some[0] if len(some) == 1 else None


def _is_sure(operand: Operand, operands: Sequence[Operand]) -> bool:
    """Whether it is a tensor: of several indices one may be a number."""
    lists = [one for one in operands if _list(one.slot) == _list(operand.slot)]
    return len(lists) == 1 or not operand.slot.endswith("]")
