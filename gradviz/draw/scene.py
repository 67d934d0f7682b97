"""What a drawing shows, as plain data: boxes, links, legend and footer, before anything
has a place or a format.

DOT, SVG, PNG, PDF and Mermaid all draw this one scene, so they agree on what is drawn.
A leaf and its AccumulateGrad node are one box. This module decides what is drawn; it
knows no coordinates, colours or file formats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from gradviz.draw import details
from gradviz.draw.chart import Chart, chart_of
from gradviz.draw.edge_words import EdgeWords
from gradviz.draw.frames import Frame, Frames
from gradviz.draw.heat import HEATS, gradient_norms
from gradviz.draw.kinds import kind_of_node
from gradviz.draw.marks import marked
from gradviz.draw.names import name_of
from gradviz.draw.options import Options
from gradviz.draw.palette import HEAT, KIND_OF_FLAG, MEANING, BoxKind
from gradviz.draw.summary import (
    backward_lines,
    counts_line,
    cut_lines,
    dtype_text,
    footer_lines,
    is_all_freed,
    mark_lines,
    saved_lines,
    tensors_of,
    usual_dtype,
    without_dtype,
)
from gradviz.features import load
from gradviz.graph import (
    BackwardStep,
    Base,
    Data,
    Edge,
    Graph,
    Leaf,
    Node,
    Root,
    SavedState,
    SavedTensor,
    column,
)
from gradviz.report import labels
from gradviz.stages import Stage

LinkStyle = Literal["data", "view", "saved", "same", "cut"]
FLOWS: tuple[LinkStyle, ...] = ("data", "cut")
"""Styles of links with an arrow."""
STALE: tuple[SavedState, ...] = ("freed", "modified")
T = TypeVar("T")
# boxes for the data that enters one box; the last one stands for the rest
MOST_DATA = 5
# boxes for the outputs of one folded box; the last one stands for the rest
MOST_OUTPUTS = 12
# a leaf with more users than this gets one box per user when `leaves` is auto
SPLIT_ABOVE = 4


class Box(NamedTuple):
    """One rectangle. `id` is its index in `Scene.boxes`.

    `lines` are ready to print, single lines: the title first, the rest in smaller or
    muted text. `flags` are words such as "freed", to be marked as a warning. `names`
    are those of a node, as `lines` has them: relative to the frame around. `about` is
    the record that is drawn when that is not the node itself; `subject` gives either.
    """

    id: int
    kind: BoxKind
    lines: tuple[str, ...]
    # the graph's node behind it; None for an output without a graph, a base outside the
    # graph, and data
    node: int | None
    about: Leaf | Root | Base | SavedTensor | Data | None
    flags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    frame: int | None = None  # index into `Scene.frames`, None when not inside one


def subject(
    graph: Graph,
    box: Box,
) -> Node | Leaf | Root | Base | SavedTensor | Data:
    """The record that a box of this graph's scene draws;
    `details(graph, subject(graph, box))` is all that is known of it.
    """
    if box.about is not None:
        return box.about
    assert box.node is not None, "a box that is about nothing else is about its node"
    return graph.nodes[box.node]


class Link(NamedTuple):
    """One line between two boxes, given by id. Data flowed from `source` to `target` in
    the forward pass.

    A link from a box to itself is a loop: the turns of a folded loop feed each other.

    Style: "data" has an arrow at `target`; "view" is dotted, from a base to its view;
    "saved" has no arrow, from a saved tensor or leaf to the node that holds it; "same"
    is dashed, between two saved tensors with one storage; "cut" is dashed data that no
    gradient goes back along. `label` is ready to print and mostly empty. `edges` are
    drawn as this one; `tip` tells more of them than the label does, and `short` less,
    where the label has no room.
    """

    source: int
    target: int
    style: LinkStyle = "data"
    label: str = ""
    edges: int = 1
    tip: str = ""
    short: str = ""


class Legend(NamedTuple):
    """What one colour means; only kinds that are drawn have an entry."""

    kind: BoxKind
    text: str


class Scene(NamedTuple):
    """Everything a drawing shows. Two parallel links stay apart, more are one. `footer`
    says what was folded, split or left out.
    """

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    legend: tuple[Legend, ...]
    footer: tuple[str, ...]
    frames: tuple[Frame, ...] = ()
    chart: Chart = Chart()  # under the footer
    dtype: str = ""  # which dtype goes without saying
    aside: tuple[str, ...] = ()  # what only a picture's description says


def scene(graph: Graph, options: Options) -> Scene:
    """What to draw of a graph under these options (`leaves`, `saved`, `attributes`,
    `color`, `numbers` matter).

    >>> from gradviz.graph import Edge, Graph, Node, Root, TensorInfo
    >>> nodes = (Node(0, "MulBackward0"), Node(1, "ExpBackward0"))
    >>> root = Root(0, 0, "loss", TensorInfo((), "float32", "cpu"))
    >>> made = scene(Graph(nodes, (Edge(0, 1, 0, 0),), roots=(root,)), Options())
    >>> [box.lines[0] for box in made.boxes]
    ['mul', 'exp', 'loss']
    >>> [(link.source, link.target) for link in made.links]
    [(1, 0), (0, 2)]
    """
    return Drafter(graph, options).draft()


class Drafter:
    """Builds one scene. Order of boxes: nodes by id, then copies of leaves, saved
    tensors, outputs, bases.
    """

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        self.boxes: list[Box] = []
        self.lines: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.links: list[Link] = []
        # node id -> box id, for nodes that have exactly one box
        self.box_of: dict[int, int] = {}
        # (leaf, its user) -> box id
        self.copies: dict[tuple[int, int | None], int] = {}
        # (node, output) -> box id of a base or of an output that is one
        self.bases: dict[tuple[int, int], int] = {}
        self.outputs_cut = 0
        self.data_uses = 0  # of data that is drawn
        self.all_freed = is_all_freed(graph)
        self.dtype, self.several_dtypes = usual_dtype(tensors_of(graph))
        self.brief = without_dtype(self.dtype)
        self.split = self._leaves_to_split()
        self.frames = Frames(graph)

        wants_norms = options.color == "grad" or options.numbers
        self.backward = gradient_norms(graph) if wants_norms else None
        self.norms = self.backward if options.color == "grad" else None
        self.heat = self.norms.heat if self.norms is not None else None
        if options.color in HEATS:
            self.heat = load(HEATS[options.color])(graph)

        self.numbers = _numbers(graph)
        self.flagged = _flagged(graph)
        self.marked = marked(graph)
        self.owners = {
            leaf.storage: leaf.node for leaf in graph.leaves if leaf.storage is not None
        }
        self.words = EdgeWords(graph, options, self.brief, self.numbers)

    def draft(self) -> Scene:
        with Stage(
            "draw",
            "nodes",
            total=len(self.graph.nodes),
        ) as drawing:
            self._draw_nodes(drawing.each(self.graph.nodes))

        with Stage(
            "draw",
            "edges",
            total=len(self.graph.edges),
        ) as drawing:
            for edge in drawing.each(self.graph.edges):
                self._draw_edge(edge)

        if self.options.saved:
            self._draw_saved()
        # saved tensors show the data as well, so only without them
        elif self.options.leaves not in ("parameters", "hidden"):
            self._draw_data()

        self._draw_roots()
        self._draw_views()
        legend, footer = self._legend(), self._footer()
        boxes, links = tuple(self.boxes), tuple(self.links)
        frames = tuple(
            frame._replace(title=self.brief(frame.title)) for frame in self.frames.drawn
        )
        dtype = dtype_text(self.dtype, self.several_dtypes)
        aside = (counts_line(self.graph),)
        return Scene(
            self.graph.title,
            boxes,
            links,
            legend,
            footer,
            frames,
            chart_of(self.graph),
            dtype,
            aside,
        )

    def _leaves_to_split(self) -> dict[int, int]:
        """How often each leaf is used that is drawn once for each of its users."""
        if self.options.leaves in ("shared", "hidden"):
            return {}
        above = 1 if self.options.leaves == "per-use" else SPLIT_ABOVE
        uses: dict[int, int] = {}
        for node in self.graph.leaf_of:
            edges = self.graph.consumers(node)
            if len({edge.consumer for edge in edges}) > above:
                uses[node] = sum(edge.count for edge in edges)
        return uses

    # -- boxes -------------------------------------------------------------------------

    def _add(
        self,
        kind: BoxKind,
        lines: tuple[str, ...],
        node: int | None,
        about: Leaf | Root | Base | SavedTensor | Data | None,
        flags: tuple[str, ...] = (),
        scope: int | None = None,
        names: tuple[str, ...] = (),
    ) -> int:
        brief_lines = self.lines.get(lines)  # thousands of boxes read the same
        if brief_lines is None:
            brief_lines = self.lines[lines] = (lines[0], *map(self.brief, lines[1:]))
        frame = self.frames.of(scope)
        box = len(self.boxes)
        self.boxes.append(Box(box, kind, brief_lines, node, about, flags, names, frame))
        return box

    def _draw_nodes(self, nodes: Iterable[Node]) -> None:
        leaf_of, hidden = self.graph.leaf_of, self.options.leaves == "hidden"
        for node in nodes:
            leaf = leaf_of.get(node.id)
            if leaf is None:
                module, with_script = (
                    self._path(node.scope),
                    self.frames.tells_no_line(node.scope),
                )
                attributes = self.options.attributes
                lines = details.node_lines(
                    self.graph,
                    node,
                    details=self.options.details,
                    attributes=attributes,
                    amount=self._amount(node),
                    module=module,
                    with_script=with_script,
                    names=self.options.op_names(
                        "variable" if self.options.details else "forward"
                    ),
                )
                title = details.sign_text(self.graph, node, lines[0], self.numbers)
                if title[1:] and title != lines[0]:
                    self.data_uses += 1  # the number is said
                lines = (title, *lines[1:])
                names = tuple(labels.relative(name, module) for name in node.names)
                kind = kind_of_node(node)
                self.box_of[node.id] = self._draw_node(
                    node, kind, lines, node.scope, None, names
                )
            elif not hidden and node.id not in self.split:
                users = [edge.consumer for edge in self.graph.consumers(node.id)]
                self.box_of[node.id] = self._draw_leaf(leaf, users)

    def _draw_node(
        self,
        node: Node,
        plain: BoxKind,
        lines: Iterable[str],
        scope: int | None,
        leaf: Leaf | None,
        names: tuple[str, ...] = (),
    ) -> int:
        """A box with what is said of every node, below the lines that it has."""
        flag_words = labels.flag_words(self.graph, node).items() if node.flags else ()
        lines = (
            *lines,
            *(
                words
                for flag, words in flag_words
                if flag not in (*labels.ALARMS, *labels.REMARKS)
            ),
        )
        value = details.value_line(self.numbers.get(node.id))
        if value:
            lines = (*(line for line in lines if self.brief(line) != "()"), value)
        norms = self.backward.of[node.id] if self.backward is not None else None
        lines = details.with_norms(
            lines,
            norms,
            numbers=self.options.numbers,
            grad=self.norms is not None,
        )

        return self._add(
            self._kind(node.id, plain),
            lines,
            node.id,
            leaf,
            self._flags(node),
            scope,
            names,
        )

    def _amount(self, node: Node) -> str:
        """What a box is coloured by, in words. A folded box says in another line what
        it holds.
        """
        if self.heat is None or self.norms is not None or not self.heat.of[node.id]:
            return ""
        if self.options.color == "memory" and node.folded is not None:
            return ""
        return self.heat.words(node.id)

    def _path(self, scope: int | None) -> str:
        """The module whose frame is around a box in this scope."""
        return "" if scope is None else self.graph.scopes[scope].path

    def _kind(self, node: int, plain: BoxKind) -> BoxKind:
        """By what it holds or gets, by how it differs between the graphs that were
        merged into this one, or `plain`.
        """
        # a flag, such as "cut", comes before any other colour
        if node in self.flagged:
            return self.flagged[node]
        step = self.heat.step(node) if self.heat is not None else 0
        # a heat map colours only what has some of it
        if step:
            return HEAT[step - 1]
        differing = {mark.kind for mark in self.marked.nodes.get(node, ())}
        if "added" in differing:
            return "added"
        if "changed" in differing:
            return "changed"
        return plain

    def _style(self, *ends: int) -> LinkStyle:
        return "data" if self.flagged.keys().isdisjoint(ends) else "cut"

    def _draw_leaf(
        self,
        leaf: Leaf,
        users: Sequence[int],
        uses: int = 1,
    ) -> int:
        """A parameter stands inside the module that all its users are in; any other
        leaf comes from outside.
        """
        # a parameter belongs to its module; data comes from outside
        scope = self.frames.around(users) if leaf.kind == "parameter" else None
        node = self.graph.nodes[leaf.node]
        placed = filter(
            None,
            [labels.placed_text(node), labels.moved_text(node)],
        )
        lines = (
            *details.leaf_lines(leaf, uses, self._path(scope)),
            *placed,
        )
        return self._draw_node(node, "leaf", lines, scope, leaf)

    def _flags(self, node: Node) -> tuple[str, ...]:
        flags = (
            *(self.norms.marks(node.id) if self.norms is not None else ()),
            *labels.mark_words(self.marked.nodes.get(node.id, ())),
        )
        if not node.flags:
            return flags

        alarms = (
            flag
            for flag in node.flags
            if flag in labels.ALARMS and not (flag == "freed" and self.all_freed)
        )

        return (*(labels.FLAG_WORDS[flag] for flag in alarms), *flags)

    def _source(
        self,
        node: int,
        user: int | None,
    ) -> int | None:
        """The box that stands for `node` towards one user, made now when it is that
        user's copy of a leaf.
        """
        if node not in self.split:
            return self.box_of.get(node)
        # one box for each user, made when its edge is drawn
        if (node, user) not in self.copies:
            users = [user] if user is not None else []
            self.copies[node, user] = self._draw_leaf(
                self.graph.leaf_of[node], users, self.split[node]
            )
        return self.copies[node, user]

    # -- links -------------------------------------------------------------------------

    def _link(
        self,
        source: int | None,
        target: int | None,
        style: LinkStyle = "data",
        label: str = "",
        edges: int = 1,
        tip: str = "",
        short: str = "",
    ) -> None:
        if (
            source is not None
            and target is not None
            and (source != target or style in FLOWS)
        ):
            self.links.append(Link(source, target, style, label, edges, tip, short))

    def _draw_edge(self, edge: Edge) -> None:
        drawn = self.words.drawn(edge)
        if drawn is None:
            return

        producer, consumer = drawn.edge.producer, drawn.edge.consumer
        marks = labels.mark_words(self.marked.edges.get((consumer, producer), ()))
        self._link(
            self._source(producer, consumer),
            self.box_of.get(consumer),
            self._style(producer, consumer),
            " ".join(filter(None, (drawn.label, *marks))),
            drawn.uses,
            drawn.tip,
            " ".join((drawn.short, *marks)) if drawn.short else "",
        )

    def _draw_saved(self) -> None:
        """A box for each saved tensor. A saved leaf has its box already, and is only
        linked to who saved it.
        """
        first: dict[int, int] = {}  # storage -> the box that showed it first
        for node in self.graph.nodes:
            target = self.box_of.get(node.id)
            for saved in node.saved:
                leaf = self._leaf_of(saved)
                source = self._source(leaf, node.id) if leaf is not None else None
                if source is not None:
                    self._link(source, target, "saved", details.saved_leaf_label(saved))
                    continue

                box = self._draw_slot(node, saved)
                self._link(box, target, "saved")
                if saved.storage is not None:
                    self._link(
                        box,
                        first.setdefault(saved.storage, box),
                        "same",
                        "same storage",
                    )

    def _leaf_of(self, saved: SavedTensor) -> int | None:
        """The leaf that a slot holds, or a view of. None for a stale slot, which has a
        box of its own to say so.
        """
        if saved.state in STALE:
            return None
        if saved.leaf is not None or saved.storage is None:
            return saved.leaf
        return self.owners.get(saved.storage)

    def _draw_slot(self, node: Node, saved: SavedTensor) -> int:
        stale = saved.state in STALE
        lines = details.saved_lines(saved, self.graph, state=not stale)
        flags = (labels.state_text(saved.state),) if stale else ()
        return self._add(
            "stale" if stale else "saved", lines, node.id, saved, flags, node.scope
        )

    def _draw_data(self) -> None:
        """A box for each tensor without gradient that ops were given. Saved tensors,
        where they are drawn, show it as well.
        """
        original = self.graph.original or self.graph
        if not original.data:
            return
        users = {node for data in original.data for node in data.nodes}
        inside = {
            node: box
            for box, nodes in enumerate(self.graph.inside)
            for node in nodes
            if node in users
        }
        entries: dict[
            tuple[tuple[int, ...], bool], dict[tuple[str, ...], list[Data]]
        ] = {}
        for data in original.data:
            found = (self.box_of.get(inside[node]) for node in data.nodes)
            boxes = tuple(dict.fromkeys(box for box in found if box is not None))
            if boxes:
                self.data_uses += len(data.nodes)
                alike = entries.setdefault((boxes, data.inner), {})
                alike.setdefault(details.data_lines(data), []).append(data)

        for (boxes, inner), alike in entries.items():
            scope = self.frames.around(list(boxes)) if inner else None
            for lines, several in few_of(alike):
                drawn = self._add(
                    "input",
                    lines,
                    None,
                    several[0],
                    scope=scope,
                )
                for box in boxes:
                    self._link(drawn, box, edges=len(several))

    def _draw_roots(self) -> None:
        # outputs drawn so far, by the folded box that they come from
        seen: Counter[int] = Counter()
        for root in self.graph.roots:
            if root.node is not None and self.graph.nodes[root.node].group is not None:
                seen[root.node] += 1
                rest = len(self.graph.roots_of[root.node]) - MOST_OUTPUTS + 1
                if rest > 1 and seen[root.node] >= MOST_OUTPUTS:
                    if seen[root.node] == MOST_OUTPUTS:
                        self.outputs_cut += rest
                        box = self._add(
                            "output", (labels.more(rest), "outputs"), root.node, root
                        )
                        self._link(
                            self._source(root.node, None),
                            box,
                            edges=rest,
                        )
                    continue

            flags = labels.mark_words(self.marked.outputs.get(root.name, ()))
            title, *rest_lines = details.root_lines(root)
            # of a loss, its name is enough
            rest_lines = [line for line in rest_lines if self.brief(line) != "()"]
            box = self._add(
                "output",
                (title, *rest_lines),
                root.node,
                root,
                flags,
            )

            if root.node is not None:
                which = self.words.which(root.node, root.output)
                is_named = self.options.names == "auto" and not self.options.details
                if is_named and root.node not in self.graph.leaf_of:
                    which = (
                        f"{which} {name_of(self.graph, root.node, root.output)}".strip()
                    )
                self._link(
                    self._source(root.node, None),
                    box,
                    self._style(root.node),
                    which,
                )
                if root.base is None:
                    self.bases.setdefault((root.node, root.output), box)

    def _draw_views(self) -> None:
        for box in tuple(self.boxes):
            if isinstance(box.about, (Root, Leaf)) and box.about.base is not None:
                self._link(
                    self._base(box.about.base),
                    box.id,
                    "view",
                )

    def _base(self, base: Base) -> int | None:
        """The box of a base: its leaf's, an output's that is the same tensor, one drawn
        before, or a new one.
        """
        if base.node is None:
            return self._add("base", details.base_lines(base), None, base)
        if base.node in self.graph.leaf_of and self.options.leaves != "hidden":
            return self._source(base.node, None)

        if (base.node, base.output) not in self.bases:
            box = self._add(
                "base",
                details.base_lines(base),
                base.node,
                base,
            )
            self.bases[base.node, base.output] = box
            self._link(
                self.box_of.get(base.node),
                box,
                label=self.words.which(base.node, base.output),
            )

        return self.bases[base.node, base.output]

    # -- words -------------------------------------------------------------------------

    def _legend(self) -> tuple[Legend, ...]:
        drawn = {box.kind for box in self.boxes}
        entries = [
            Legend(kind, text) for kind, text in MEANING.items() if kind in drawn
        ]
        if self.heat is not None:
            for step, kind in enumerate(HEAT, 1):
                if kind in drawn:
                    entries.append(Legend(kind, self.heat.legend(step)))
        return tuple(entries)

    def _footer(self) -> tuple[str, ...]:
        hidden = len(self.graph.leaf_of) if self.options.leaves == "hidden" else 0
        lines = list(mark_lines(self.marked))
        copies, data = len(self.copies), self.data_uses
        _, *left_out = footer_lines(
            self.graph,
            split=len(self.split),
            copies=copies,
            hidden=hidden,
            data=data,
        )
        lines += left_out if self.boxes else [counts_line(self.graph)]
        lines += cut_lines(self.outputs_cut)
        if self.options.saved:
            lines += saved_lines(self.graph)

        if self.heat is not None and self.heat.note:
            lines.append(self.heat.note)

        if any(link.label.startswith("\u00d7 ") for link in self.links):
            lines.append(
                "grad: gradient arriving here; \u00d7: local derivative on the way back"
            )

        if self.backward is not None:
            lines += backward_lines(
                self.backward,
                numbers=self.options.numbers,
                grad=self.norms is not None,
            )

        return tuple(lines)


def _flagged(graph: Graph) -> dict[int, BoxKind]:
    """How nodes are drawn that have a flag for it."""
    return {
        node: KIND_OF_FLAG[flag]
        for node, flags in enumerate(column(graph.nodes, "flags"))
        for flag in flags
        if flag in KIND_OF_FLAG
    }


def _numbers(graph: Graph) -> dict[int, BackwardStep]:
    """The steps of backward with numbers of small tensors, by box of a single node."""
    steps = {
        step.node: step
        for step in (graph.original or graph).backward
        if step.value or step.arrived
    }
    alone = (
        (box, nodes[0])
        for box, nodes in enumerate(graph.inside if steps else ())
        if len(nodes) == 1
    )
    return {box: steps[node] for box, node in alone if node in steps}


def few_of(
    alike: dict[tuple[str, ...], list[T]],
) -> Iterator[tuple[tuple[str, ...], list[T]]]:
    """Data that enters at one place, by its lines: `x[:, t] ×11`, and at most
    `MOST_DATA` boxes.
    """
    entries = list(alike.items())
    most = MOST_DATA if len(entries) <= MOST_DATA else MOST_DATA - 1
    for (title, *rest), data in entries[:most]:
        again = f" {labels.again(len(data))}" if len(data) > 1 else ""
        yield (title + again, *rest), data

    others = [data for _, several in entries[most:] for data in several]
    if others:
        yield (labels.more(len(others)), "inputs"), others
