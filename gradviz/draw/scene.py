"""What a drawing shows, as plain data: boxes, links, legend and footer, before anything
has a place or a format.

DOT, SVG, PNG, PDF and Mermaid all draw this one scene, so they agree on what is drawn.
A leaf and its AccumulateGrad node are one box. This module decides what is drawn; it
knows no coordinates, colours or file formats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from gradviz.draw import data_boxes, details
from gradviz.draw.edge_words import EdgeWords, name_of
from gradviz.draw.frames import Frame, Frames
from gradviz.draw.node_boxes import NodeBoxes
from gradviz.draw.options import Options
from gradviz.draw.palette import HEAT, MEANING, BoxKind
from gradviz.draw.summary import (
    cut_lines,
    dtype_text,
    footer_lines,
    mark_lines,
    saved_lines,
    telling,
    tensors_of,
    usual_dtype,
    without_dtype,
)
from gradviz.fold.folding import Folding
from gradviz.graph import Data, Edge, Leaf, Node, Root, SavedState, SavedTensor
from gradviz.graph.walks import users
from gradviz.report import labels
from gradviz.stages import Stage

LinkStyle = Literal["data", "saved", "cut"]
FLOWS: tuple[LinkStyle, ...] = ("data", "cut")
"""Styles of links with an arrow."""
STALE: tuple[SavedState, ...] = ("freed", "modified")
# boxes for the outputs of one folded box; the last one stands for the rest
MOST_OUTPUTS = 12
# a leaf with more users than this gets one box per user when `leaves` is auto
SPLIT_ABOVE = 4


About = Node | Leaf | Root | SavedTensor | Data


class Box(NamedTuple):
    """One rectangle. `id` is its index in `Scene.boxes`.

    `lines` are ready to print, single lines: the title first, the rest in smaller or
    muted text. `flags` are words such as "freed", to be marked as a warning. `about` is
    the record that is drawn: `details(folding, box.about)` is all that is known of it.
    """

    id: int
    kind: BoxKind
    lines: tuple[str, ...]
    # the box of the folding; None for an output without a graph, and data
    number: int | None
    about: About
    flags: tuple[str, ...] = ()
    frame: int | None = None  # index into `Scene.frames`, None when not inside one


class Link(NamedTuple):
    """One line between two boxes, given by id. Data flowed from `source` to `target` in
    the forward pass.

    A link from a box to itself is a loop: the turns of a folded loop feed each other.

    Style: "data" has an arrow at `target`; "saved" has none, from a saved tensor or
    leaf to the node that holds it; "cut" is dashed data that no gradient goes back
    along. `label` is ready to print and mostly empty.
    """

    source: int
    target: int
    style: LinkStyle = "data"
    label: str = ""


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
    dtype: str = ""  # which dtype goes without saying
    ran: tuple[int, ...] = ()  # a number of each box: what ran earlier has a lower one


def scene(folding: Folding, options: Options) -> Scene:
    """What to draw of a folding under these options (`leaves`, `saved`, `color` matter).

    >>> from gradviz.fold.folding import unfolded
    >>> from gradviz.graph import Edge, Graph, Node, Root, TensorInfo
    >>> nodes = (Node(0, "MulBackward0"), Node(1, "ExpBackward0"))
    >>> root = Root(0, 0, "loss", TensorInfo((), "float32", "cpu"))
    >>> graph = Graph(nodes, (Edge(0, 1, 0, 0),), roots=(root,))
    >>> made = scene(unfolded(graph), Options())
    >>> [box.lines[0] for box in made.boxes]
    ['mul', 'exp', 'loss']
    >>> [(link.source, link.target) for link in made.links]
    [(1, 0), (0, 2)]
    """
    return Drafter(folding, options).sketch()


class Drafter:
    """Builds one scene. Order of boxes: those of the folding, then copies of leaves, saved
    tensors, outputs.
    """

    def __init__(self, folding: Folding, options: Options) -> None:
        self.folding, self.graph, self.options = folding, folding.graph, options
        self.boxes: list[Box] = []
        self.links: list[Link] = []
        # of the boxes of the folding, those that have exactly one here
        self.drawn: dict[int, int] = {}
        # (leaf, its user) -> box id
        self.copies: dict[tuple[int, int | None], int] = {}
        self.outputs_cut = 0
        self.data: dict[int, int] = {}  # the boxes of data, by its place in the graph

        self.dtype, self.several_dtypes = usual_dtype(
            tensors_of(folding.boxes, folding.leaf_in.values())
        )
        self.brief = without_dtype(self.dtype)
        self.split = self._leaves_to_split()
        self.frames = Frames(folding)
        self.nodes = NodeBoxes(folding, options, self.brief)
        self.words = EdgeWords(folding, options, self.brief, self.nodes.numbers)

    def sketch(self) -> Scene:
        folding = self.folding
        with Stage("draw", "nodes", total=folding.size) as drawing:
            for box in drawing.each(range(folding.size)):
                self._draw_box(box)

        with Stage("draw", "edges", total=len(folding.edges)) as drawing:
            for edge in drawing.each(folding.edges):
                self._draw_edge(edge)

        if self.options.saved:
            self._draw_saved()
        # saved tensors show the data as well, so only without them
        elif self.options.leaves not in ("parameters", "hidden"):
            self._draw_data()

        self._draw_outputs()
        whole = Scene(
            title=self.graph.title,
            boxes=tuple(self.boxes),
            links=tuple(self.links),
            legend=tuple(self._legend()),
            footer=tuple(self._footer()),
            frames=tuple(
                frame._replace(title=self.brief(frame.title))
                for frame in self.frames.drawn
            ),
            dtype=dtype_text(self.dtype, self.several_dtypes),
            ran=tuple(self._ran()),
        )
        if self.options.bare:
            return whole._replace(title="", legend=(), footer=(), dtype="")
        return whole

    def _ran(self) -> Iterator[int]:
        for box in self.boxes:
            inside = () if box.number is None else self.folding.nodes_in(box.number)
            yield min((node.sequence or 0 for node in inside), default=0)

    def _leaves_to_split(self) -> dict[int, Counter[int]]:
        """How often each of its users uses a leaf that is drawn once for each of them."""
        if self.options.leaves in ("shared", "hidden"):
            return {}
        above = 1 if self.options.leaves == "per-use" else SPLIT_ABOVE
        split: dict[int, Counter[int]] = {}
        for box in self.folding.leaf_in:
            uses = Counter[int]()
            for edge in self.folding.consumers(box):
                uses[edge.consumer] += edge.count
            if len(uses) > above:
                split[box] = uses
        return split

    # -- boxes -------------------------------------------------------------------------

    def _add(
        self,
        kind: BoxKind,
        lines: Sequence[str],
        number: int | None,
        about: About,
        flags: tuple[str, ...] = (),
        scope: int | None = None,
    ) -> int:
        brief_lines = (lines[0], *filter(None, map(self.brief, lines[1:])))
        frame = self.frames.of(scope)
        box = len(self.boxes)
        self.boxes.append(Box(box, kind, brief_lines, number, about, flags, frame))
        return box

    def _draw_box(self, box: int) -> None:
        if box not in self.folding.leaf_in:
            node = self.folding.boxes[box]
            kind, lines, flags = self.nodes.op(box)
            self.drawn[box] = self._add(kind, lines, box, node, flags, node.scope)
        elif self.options.leaves != "hidden" and box not in self.split:
            self.drawn[box] = self._draw_leaf(box, users(self.folding, box))

    def _draw_leaf(self, box: int, users: Sequence[int], uses: int = 1) -> int:
        """A parameter stands inside the module that all its users are in; any other
        leaf comes from outside.
        """
        leaf = self.folding.leaf_in[box]
        scope = self.frames.around(users) if leaf.kind == "parameter" else None
        kind, lines, flags = self.nodes.leaf(box, uses, scope)
        return self._add(kind, lines, box, leaf, flags, scope)

    def _source(self, box: int, user: int | None) -> int | None:
        """What is drawn for a box towards one user, made now when it is that user's copy
        of a leaf.
        """
        if box not in self.split:
            return self.drawn.get(box)
        # one for each user, made when its edge is drawn
        if (box, user) not in self.copies:
            users = [user] if user is not None else []
            uses = sum(self.split[box][one] for one in users)
            self.copies[box, user] = self._draw_leaf(box, users, uses)
        return self.copies[box, user]

    # -- links -------------------------------------------------------------------------

    def _link(
        self,
        source: int | None,
        target: int | None,
        style: LinkStyle = "data",
        label: str = "",
    ) -> None:
        if source is not None and target is not None:
            self.links.append(Link(source, target, style, label))

    def _style(self, *ends: int) -> LinkStyle:
        return "data" if self.nodes.cut_off.isdisjoint(ends) else "cut"

    def _draw_edge(self, edge: Edge) -> None:
        drawn = self.words.drawn(edge)
        if drawn is None:
            return

        producer, consumer = drawn.edge.producer, drawn.edge.consumer
        marks = self.nodes.marked.edges.get((consumer, producer), ())
        marked = labels.mark_words(marks)
        self._link(
            self._source(producer, consumer),
            self.drawn.get(consumer),
            self._style(producer, consumer),
            " ".join(filter(None, (drawn.label, *marked))),
        )

    def _draw_saved(self) -> None:
        """A box for each saved tensor. A saved leaf has its box already, and is only
        linked to who saved it.
        """
        owners = {leaf.storage: box for box, leaf in self.folding.leaf_in.items()}
        for number, node in enumerate(self.folding.boxes):
            target = self.drawn.get(number)
            for saved in node.saved:
                leaf = None if saved.leaf is None else self.folding.box_of[saved.leaf]
                # one that is drawn inside a box is none
                if leaf not in self.folding.leaf_in:
                    leaf = None if saved.storage is None else owners.get(saved.storage)
                # a stale slot has a box of its own to say so
                is_stale = saved.state in STALE
                source = None
                if leaf is not None and not is_stale:
                    source = self._source(leaf, number)
                if source is not None:
                    self._link(source, target, "saved", details.saved_leaf_label(saved))
                else:
                    kind: BoxKind = "stale" if is_stale else "saved"
                    lines = details.saved_lines(saved, self.graph)
                    box = self._add(kind, lines, number, saved, scope=node.scope)
                    self._link(box, target, "saved")

    def _draw_data(self) -> None:
        """A box for each tensor without gradient that ops were given. Saved tensors,
        where they are drawn, show it as well.
        """
        every = self.graph.data
        scopes: dict[int, int | None] = {}
        inside = data_boxes.Inside(self.folding, self.frames, self.drawn)
        found = data_boxes.entries(self.folding, self.drawn, self.frames, inside)
        entries, closed = found
        for (boxes, scope), alike in entries.items():
            for lines, several in data_boxes.few_of(alike):
                lines = tuple(filter(None, lines))
                drawn = self._add("input", lines, None, every[several[0]], scope=scope)
                for box in boxes:
                    self._link(drawn, box)
                self.data.update(dict.fromkeys(several, drawn))
                scopes.update(dict.fromkeys(several, scope))
        for place, box in closed.items():
            self.data[place] = box
            scopes[place] = self.frames.around([self.boxes[box].number or 0])
        self._draw_sources(scopes, inside)

    def _draw_sources(
        self, scopes: Mapping[int, int | None], inside: data_boxes.Inside
    ) -> None:
        """Dashed links to data from what it is computed from. `scopes`: in which data lies,
        by its place; what was written `inside` closed boxes is not drawn.
        """
        drawn, links = self.data, dict[tuple[int, int], None]()
        solid = {(link.source, link.target) for link in self.links}
        for data, sources in data_boxes.sources(self.graph.data, scopes).items():
            for source in sources:
                if source not in drawn:
                    about = self.graph.data[source]
                    if inside.holds(about, inside.users[data]):
                        continue
                    lines = details.data_lines(about)
                    scope = self.frames.where_written(scopes[data], about)
                    drawn[source] = self._add("input", lines, None, about, scope=scope)
                links[drawn[source], drawn[data]] = None
        for source, target in links:
            if source != target and (source, target) not in solid:
                self._link(source, target, "cut")

    def _draw_outputs(self) -> None:
        """A box for each output; the last one of many from one folded box stands for
        the rest, which are counted.
        """
        seen: Counter[int] = Counter()
        for root in self.graph.roots:
            maker = None if root.node is None else self.folding.box_of[root.node]
            rest = 0
            if maker is not None and self.folding.boxes[maker].group is not None:
                seen[maker] += 1
                rest = len(self.folding.roots_of[maker]) - MOST_OUTPUTS + 1

            if maker is None or rest < 2 or seen[maker] < MOST_OUTPUTS:
                self._draw_root(root, maker)
            elif seen[maker] == MOST_OUTPUTS:
                self.outputs_cut += rest
                lines = (labels.more(rest), "outputs")
                box = self._add("output", lines, maker, root)
                self._link(self._source(maker, None), box)

    def _draw_root(self, root: Root, maker: int | None) -> None:
        flags = labels.mark_words(self.nodes.marked.outputs.get(root.name, ()))
        title, *rest = details.root_lines(root)
        # of a loss, its name is enough
        lines = (title, *telling(rest, self.brief))
        box = self._add("output", lines, maker, root, flags)
        if maker is None or root.node is None:
            return

        label = ""
        is_named = self.options.names == "auto" and not self.options.details
        if is_named and self.folding.boxes[maker].folded is None:
            label = name_of(self.graph, root.node, root.output)
        source = self._source(maker, None)
        self._link(source, box, self._style(maker), label)

    # -- words -------------------------------------------------------------------------

    def _legend(self) -> Iterator[Legend]:
        drawn = {box.kind for box in self.boxes}
        for kind, text in MEANING.items():
            if kind in drawn:
                yield Legend(kind, text)
        for step, kind in enumerate(HEAT, 1):
            if self.nodes.heat is not None and kind in drawn:
                yield Legend(kind, self.nodes.heat.legend(step))

    def _footer(self) -> Iterator[str]:
        yield from mark_lines(self.nodes.marked)
        counts, *left_out = footer_lines(
            self.folding,
            split=len(self.split),
            copies=len(self.copies),
            hidden=self.options.leaves == "hidden",
            data=self.data,
            signs=self.nodes.signs,
        )
        yield from left_out if self.boxes else [counts]
        yield from cut_lines(self.outputs_cut)
        if self.options.saved:
            yield from saved_lines(self.folding)
        if self.nodes.heat is not None and self.nodes.heat.note:
            yield self.nodes.heat.note
        if any(link.label.startswith("\u00d7 ") for link in self.links):
            yield "grad: gradient arriving here; \u00d7: local derivative on the way back"
