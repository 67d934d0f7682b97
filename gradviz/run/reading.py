"""What there is to look at in a run: at a backward call, after a step, when the script
has ended, or where it failed; and the graph behind it.

Knows nothing of which call is meant. How a name is looked up lies in `outputs`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from gradviz.errors import TargetError, did_you_mean
from gradviz.features import hook
from gradviz.graph import Graph, Process
from gradviz.rank import rank
from gradviz.run.ending import Failure, users_code
from gradviz.run.engine import EngineCall, call_place, call_words
from gradviz.run.inputs import InputSpec, input_hint
from gradviz.run.outputs import (
    LiveOutputs,
    check_tensors,
    final_tensors,
    lookup,
    no_graph_words,
    outputs_of,
)
from gradviz.run.program import Program
from gradviz.run.target import Target, parse_target, with_inputs
from gradviz.variables.scanner import Namespace, name_of, variables_at
from gradviz.wording import place_text

if TYPE_CHECKING:
    from gradviz.recording.record import Recording

_OUTERMOST = Program.run.__code__


def read_graph(live: LiveOutputs, cuts: bool = False) -> Graph:
    """The graph behind the outputs, for `Run.read`; with `cuts` also what lines cut off
    of it.
    """
    from gradviz.armour.isolation import isolated
    from gradviz.variables.objects import reading_once
    from gradviz.walker.walk import capture

    with reading_once():
        walked = capture(
            live.outputs,
            variables=live.variables,
            title=live.title,
            need_graph=not cuts,  # a loss that was cut off shows where
            attribution=live.attribution,
        )
        graph = walked.graph
        answers = hook("gradviz.cuts.answers:Answers")
        if answers is not None:
            with isolated():
                graph = answers(live, walked).marked(cuts)

    return replace(graph, notes=(*live.notes, *graph.notes)).with_root_names(live.names)


def with_process(graph: Graph) -> Graph:
    """The graph with the process that has read it, where it is one of several."""
    place = rank()
    if place is None:
        return graph
    return replace(graph, process=Process(place.number, place.world))


class Moments:
    """What a program has to look at, moment by moment: its target's name, else the
    tensors of a call, or those that are left.

    With `need_graph` a name has to hold a tensor.
    """

    def __init__(self, target: Target, program: Program, need_graph: bool) -> None:
        self._target, self._program = target, program
        self._need_graph = need_graph
        process = rank()
        self._title = target.title
        self.borrowed = ExitStack()  # put back what a model's call changes
        if process is not None:
            self._title += f", {process}"

    def has_name(self, frame: FrameType) -> bool:
        """Whether what the target names is there already, if it names something."""
        first = self._target.name.partition(".")[0]
        return not first or any(first in space for space in self._variables(frame))

    def at_call(
        self, call: EngineCall, number: int, notes: tuple[str, ...], ran: bool
    ) -> LiveOutputs | Failure:
        """At a backward call, before the engine runs or when it `ran`. `notes` are told
        of outputs that nobody named.
        """
        variables = self._variables(call.frame)
        if self._target.name:
            return self._named(variables)

        words = call_words(call, variables, _OUTERMOST)
        title = f"{self._title}: {words} at {self.place(call.frame)}, call {number}"
        outputs, names = call.outputs, tuple[str, ...]()
        if len(outputs) > 1:
            # what no variable holds is called by its place in the call
            names = tuple(
                name_of(output, variables) or f"output[{i}]"
                for i, output in enumerate(outputs)
            )

        return LiveOutputs(
            outputs if names else outputs[0],
            variables,
            title,
            names,
            notes,
            frame=call.frame,
            call=number,
            create_graph=call.create_graph,
            ran=ran,
            accumulates=call.accumulates,
            inputs=call.inputs,
        )

    def after_step(self, frame: FrameType, number: int) -> LiveOutputs:
        """After the first step of an optimizer, whose frames lie between this one and
        the user's: all its parameters and their gradients are there.
        """
        title = f"{self._title}: after the first optimizer step at {self.place(frame)}"
        variables = self._variables(frame)
        return LiveOutputs(None, variables, title, frame=frame, call=number, ran=True)

    def at_end(self) -> LiveOutputs | Failure:
        """When the script has ended. Raises NoGraphError where no tensor is left."""
        namespace = self._program.namespace
        if self._target.name or self._target.inputs:
            return self._named([namespace])
        if not self._need_graph:
            return LiveOutputs(None, [namespace], self._title)

        words = no_graph_words(self._target, self._program.namespace)
        tensors = final_tensors(self._program.made, *words)
        more = ", ..." if len(tensors) > 3 else ""
        title = f"{self._title}: {', '.join(list(tensors)[:3])}{more}"
        outputs = list(tensors.values())
        single = outputs[0] if len(outputs) == 1 else outputs
        return LiveOutputs(single, [namespace], title, tuple(tensors))

    def unfinished(self, recording: Recording, failure: Failure) -> LiveOutputs | None:
        """What had been computed when the script failed, if a forward pass was under
        way.
        """
        namespace = self._program.namespace
        last = recording.last_outputs(failure.error, [namespace])
        # a cell of a notebook also sees the variables of other cells
        new_names = self._program.made
        outputs = {
            name: value
            for name, value in last.outputs.items()
            if name in new_names or namespace.get(name) is not value
        }
        if not outputs or last.source is None:
            return None

        place = place_text(os.path.basename(last.source.file), last.source.line)
        inside = f" in {last.module}" if last.module else ""
        notes = (
            f"stopped at {place}{inside}: {last.source.text}",
            last.error.splitlines()[0],
        )
        names = tuple(
            f"{name}, where it failed" if name.startswith("input of") else name
            for name in outputs
        )
        title = f"{self._title}, until it failed at {place}"
        return LiveOutputs(list(outputs.values()), [namespace], title, names, notes)

    def place(self, frame: FrameType) -> str:
        """Where the user's code is at: `train.py:12`."""
        return call_place(frame, _OUTERMOST)

    def _variables(self, frame: FrameType) -> list[Namespace]:
        return variables_at(frame, self._program.namespace, _OUTERMOST)

    def _named(self, variables: Sequence[Namespace]) -> LiveOutputs | Failure:
        """The value of the target's name, or what it returns when it is a function:
        that part is the user's code, which may fail.
        """
        name, place = self._target.name, self._target.short
        label, outputs = name, None
        if self._target.inputs:
            return self._of_model(variables)
        with users_code() as outcome:
            value = lookup(name, variables, place)
            outputs = outputs_of(value, name, place)
            label = name if outputs is value else f"{name}()"

        if outcome.failure is not None:
            return outcome.failure
        if self._need_graph:
            check_tensors(outputs, label, place)
        return LiveOutputs(outputs, [{label: outputs}, *variables], self._title)

    def _of_model(self, variables: Sequence[Namespace]) -> LiveOutputs | Failure:
        """What the model that the target names returns for its inputs. Until `borrowed` is
        closed, it is as the call left it.
        """
        from gradviz.run.forward import forward_pass, names_of_modules

        name, place = self._target.name, self._target.short
        if not name:
            names = did_you_mean("", names_of_modules(variables[-1]), what="models")
            raise TargetError(
                f"--input calls a model, so say which one: {place}:NAME. {names}"
            )

        with users_code() as outcome:
            value = self._model(variables)
            inputs = [
                (one, self._value(one, variables) if one.place else None)
                for one in self._target.inputs
            ]
            call = forward_pass(value, name, place, inputs)
            run = self.borrowed.enter_context(call)

        if outcome.failure is not None:
            hint = input_hint(outcome.failure.error, self._target.inputs)
            return replace(outcome.failure, explanation=hint)
        check_tensors(run.outputs, name, place)
        title = self._title + run.remark
        return LiveOutputs(run.outputs, [run.names(name), *variables], title)

    def _model(self, variables: Sequence[Namespace]) -> object:
        name, place = self._target.name, self._target.short
        try:
            return lookup(name, variables, place, classes=True)
        except TargetError as error:
            if not self._target.is_imported:
                raise
            raise TargetError(
                f"{error} {place} was imported, so nothing below `if __name__ == '__main__'` ran: "
                "--at 1 runs it to its first backward(), and looks there"
            ) from None

    def _value(self, spec: InputSpec, variables: Sequence[Namespace]) -> object:
        """What a name in a file or module holds, what a function of it returns, or the
        first batch of a loader.
        """
        from gradviz.run.forward import value_of_input

        target = with_inputs(parse_target(f"{spec.place}:{spec.name}"), [spec], False)
        if target.place == self._target.place:
            return value_of_input(lookup(spec.name, variables, target.short))
        program = Program(target)
        with program.interpreter(()):
            program.run()
            value = lookup(spec.name, [program.namespace], target.short)
            return value_of_input(value)
