"""The check on the exception that ended a script: what autograd, an optimizer or a
tensor refused, why, and what to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from textwrap import shorten
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead, together
from gradviz.checks.record import Raised
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import (
    Names,
    all_names,
    as_code,
    as_leaf,
    code,
    line,
    listed,
    made_at,
)
from gradviz.graph import SourceLine
from gradviz.source.code_line import assigned, calling, read
from gradviz.source.search import draws_by_chance, inference_modes, lines_behind, passes
from gradviz.wording import bytes_text, one_line

_Lines = list[SourceLine]
_Find = Callable[[CheckContext, Raised], _Lines]
_Write = Callable[[Raised, SourceLine], str]


class Message(NamedTuple):
    """A message that is understood. {name}, {line} and the like, and the groups of the
    pattern, are filled in.
    """

    pattern: str
    summary: str
    why: str
    fix: str
    said_by: Names = ()  # checks that say it more exactly
    find: _Find = lambda context, raised: []
    # what to do when `find` finds the lines that have to change, {at}
    fix_there: str = ""
    new: _Write = lambda raised, at: ""  # such a line as it should be, {new}


def understood(
    text: str, messages: Sequence[Message]
) -> tuple[Message, dict[str, str]] | None:
    """The first message that a text is, with the groups of its pattern."""
    matches = (
        (
            known,
            re.search(known.pattern, text, re.DOTALL),
        )
        for known in messages
    )
    return next(
        ((known, match.groupdict("")) for known, match in matches if match), None
    )


def _in_file(search: Callable[[str], _Lines]) -> _Find:
    """Finds the one line of the file, where there is one only."""

    def find(context: CheckContext, raised: Raised) -> _Lines:
        lines = search(raised.source.file) if raised.source is not None else []
        return lines if len(lines) == 1 else []

    return find


def _passes(**values: str) -> _Find:
    """Finds the one line of the file that passes an argument with this value, as the
    code spells it.
    """
    return _in_file(
        lambda file: [
            at
            for keyword, value in values.items()
            for at in passes(file, keyword, value)
        ]
    )


def _swapped(pattern: str, new: str = "") -> _Write:
    """Writes a line with something else in the place of a pattern; {code} is the tensor
    that was refused.
    """
    return lambda raised, at: re.sub(
        pattern, new.replace("{code}", _refused(raised)), at.text
    )


def _refused(raised: Raised) -> str:
    return as_code(next(iter(raised.missing), "x"))


def _used_up(context: CheckContext, raised: Raised) -> _Lines:
    """The line that keeps the iterator which `parameters()` returns."""
    kept = [
        source
        for source in lines_behind(raised.source)
        if re.search(_KEPT, source.text)
    ]
    return kept if len(kept) == 1 else []


def _made_of_a_leaf(context: CheckContext, raised: Raised) -> _Lines:
    """The lines that compute something of a new leaf, of what the line that failed
    reads.
    """
    named = set(read(raised.source))
    tensors = (
        tensor
        for tensor in context.named_tensors
        if tensor.node is not None and named & set(tensor.names)
    )
    lines = (made_at(context.graph, tensor.node) for tensor in tensors)
    return [line for line in dict.fromkeys(lines) if line is not None and as_leaf(line)]


_PARTS = re.compile(r"part of (.+): (torch\.cat.+)")


def _from_parts(raised: Raised, source: SourceLine) -> str:
    """A line that reads a tensor as a whole, written so that it reads its parts."""
    whole, parts = next(
        iter(_PARTS.findall(raised.within)),
        ("", ""),
    )
    if whole in read(source):
        return re.sub(rf"(?<![\w.]){re.escape(whole)}(?!\w)", parts, source.text)
    return ""


def _uses_the_whole(context: CheckContext, raised: Raised) -> _Lines:
    """The line behind which a tensor and its parts go apart."""
    lines = lines_behind(raised.source)
    cut = [source for source in lines if set(raised.missing) & set(assigned(source))]
    return [
        source
        for source in lines
        if cut and source.line > cut[0].line and _from_parts(raised, source)
    ][-1:]


def _where(line: SourceLine | None) -> _Lines:
    return [line] if line is not None else []


_KEPT = r"= ([\w.]+\.parameters\(\))$"
_NUMBERS = (
    "item",
    "mean",
    "sum",
    "detach",
    "float",
    "norm",
    "max",
    "min",
    "cpu",
    "numpy",
    "tolist",
    "size",
    "dim",
)
_MODULE = re.compile(r"'?(\w+)(?:' object has no|\.__init__)")


def _called(raised: Raised, source: SourceLine) -> str:
    """A line that names a method or makes a module, as it should be: with a call of it."""
    kind = _MODULE.search(raised.within) or _MODULE.search(raised.text)
    return calling(
        source,
        *([kind[1]] if kind is not None else _NUMBERS),
    )


def _uncalled(context: CheckContext, raised: Raised) -> _Lines:
    return [
        source
        for source in (*_where(raised.source), *lines_behind(raised.source))
        if _called(raised, source)
    ][:1]


_BEGINS = re.compile(r"^[\w.\[\]]+\.backward\(\)$")
_UNREDUCED = _passes(reduction="'none'", reduce="False")
_REDUCED = _swapped(r",? ?(reduction=.none.|reduce=False)")
_BACKWARD = Message(
    "",
    "backward() from {name} failed",
    "the error comes out of the backward pass, at an operation that the message names, or of a hook or custom Function",
    "Put the forward pass and backward() inside `with torch.autograd.set_detect_anomaly(True):`: the error then shows the line of "
    "the forward pass that the operation belongs to.",
)
_KNOWN = (
    Message(
        r"(?P<optimizer>\w+) does not support sparse gradients",
        "{optimizer} cannot use the sparse gradient of an embedding",
        "an embedding made with sparse=True gets a sparse gradient, and {optimizer} keeps a state for every element",
        "Make the embedding without sparse=True; or use torch.optim.SparseAdam for it.",
        find=_passes(sparse="True"),
        fix_there="In {at}, leave out sparse=True; or use torch.optim.SparseAdam for these parameters.",
        new=_swapped(r",? ?sparse=True"),
    ),
    Message(
        r"Expected more than 1 value per channel when training, got input size (?P<size>.*)",
        "batch normalization in training mode is given a single sample",
        "its input has the size {size}: of one value no variance can be computed",
        "Leave out a last batch of one sample: DataLoader(..., drop_last=True). To evaluate, call .eval() first.",
    ),
    Message(
        "cudnn RNN backward can only be called in training mode",
        "a recurrent layer ran in eval() mode on the GPU, and cuDNN computes no gradient for that",
        "cuDNN keeps what backward needs only in training mode",
        "Call .train() on the recurrent layer before the forward pass; its dropout is switched off by setting its .dropout to 0. "
        "Or run the forward pass inside `with torch.backends.cudnn.flags(enabled=False):`.",
        ("wrong-mode",),
    ),
    Message(
        "grad can be implicitly created only for scalar outputs",
        "backward() began at {name}, which is not one number",
        "{name} has the shape {shape}, and backward() without an argument needs a single number to begin at",
        "Reduce it first: {name}.mean().backward(), or {name}.sum().backward(). A loss made with reduction='none' needs that, too.",
        find=lambda context, raised: (
            _where(raised.source)
            if raised.source is not None and _BEGINS.match(raised.source.text)
            else []
        ),
        fix_there="In {at}, reduce it first: {new}. A loss made with reduction='none' that nothing weighs needs no such argument.",
        new=_swapped(r"(?=\.backward\()", ".mean()"),
    ),
    Message(
        r"only for real scalar outputs but got (?P<got>[\w.]+)",
        "backward() began at {name}, which is complex",
        "{name} is {got}, and a loss is one real number: of a complex one it is not said which way is down",
        "Take a real number before it is reduced: (a - b).abs().square().mean() for a difference, or torch.view_as_real(x).",
    ),
    Message(
        r"differentiated Tensor.* not have been used.*\npart of (?P<base>[^\n:]+)",
        "autograd.grad was asked for the gradient of {missing}, which {name} is not computed from",
        "{missing} was cut out of {base} and is a tensor of its own, and {name} is computed from {base}",
        "Ask for the gradient of {base}, and cut the part out of that.",
        find=_uses_the_whole,
        fix_there="Compute it from the parts, in {at}: {new}. Or ask for the gradient of {base}, and cut the part out of that.",
        new=_from_parts,
    ),
    Message(
        r"differentiated Tensors?(?: at index \d+)? (?:appears to not have been used|does not require grad)",
        "autograd.grad was asked for the gradient of {missing}, which {name} does not depend on",
        "no path in the graph of {name} leads to {missing}: it was replaced, detached, or left out on the way",
        "Compute {name} from {missing} itself, without .detach() or .data of it on the way; give allow_unused=True only if None "
        "is a right answer.",
        find=lambda context, raised: [
            cut.source
            for cut in context.cuts
            if {*cut.leaf, *cut.behind} & {*raised.missing}
        ][:1],
        fix_there="In {at}, leave out .detach() or .data, so that {name} depends on {missing}.",
        new=_swapped(r"\.detach\(\)|\.data\b"),
    ),
    Message(
        "You must implement either the backward or vjp method for your custom autograd.Function",
        "backward() reached a custom Function that has none",
        "autograd does not look into forward() of a custom Function: without a backward() it has no gradient",
        "Write it below forward(): @staticmethod, then def backward(ctx, gradient), which returns one gradient for "
        "each argument of forward(). For an operation that is flat, such as sign or round, return gradient itself.",
    ),
    Message(
        "BackwardHookFunction is a view and is being modified inplace",
        "what a module with a full backward hook returned is changed in place",
        "the hook gives out a view of the result, and autograd cannot follow a change of that",
        "Change a copy: use inplace=False in the module behind, or x.clone() before the line that changes it.",
        find=_passes(inplace="True"),
        fix_there="In {at}, leave out inplace=True.",
        new=_swapped(r",? ?inplace=True"),
    ),
    Message(
        r"function (?P<op>\w+)Backward returned an incorrect number of gradients \(expected (?P<want>\d+), got "
        r"(?P<got>\d+)\)",
        "backward() of {op} returns {got} gradients, and its forward() took {want} arguments",
        "a custom Function returns one gradient for each argument of forward() (without ctx), in that order",
        "Return {want} values from {op}.backward(): None for each argument that is no tensor or needs no gradient.",
        find=lambda context, raised: _where(raised.custom),
        fix_there="In {at}, return {want} values, in the order of the arguments of forward(): None for each that is "
        "no tensor or needs no gradient.",
    ),
    Message(
        r"[Ff]unction (?P<op>\w+) returned an invalid gradient at index (?P<index>\d+) - (?P<what>.*)",
        "{op} gives a gradient that does not fit its input {index}",
        "a gradient has the shape, dtype and device of the tensor that it belongs to: {what}",
        "Return a gradient like the input: sum it over the dimensions that were broadcast, and convert it with "
        ".to(input).",
        find=lambda context, raised: _where(
            raised.custom if _is_only_reshaped(raised) else None
        ),
        fix_there="Return it in the shape of the input: the number of elements is right. In {at}, use .reshape() "
        "where their order is, too, or put parts together with torch.stack along the dimension that is missing, and "
        "not with torch.cat.",
    ),
    Message(
        r"a (?P<view>view of a )?leaf Variable that requires grad is being used in an in-place operation",
        "a {view}leaf that requires grad is changed in place while autograd records",
        "the operation would have to be part of the graph, and a leaf has no history",
        "Change it without recording: put the line inside `with torch.no_grad():`. To have the change in the graph, "
        "make a new tensor, as in w = w.clone(), and change that.",
    ),
    Message(
        "can't optimize a non-leaf Tensor",
        "an optimizer was given a tensor that is the result of an operation",
        "an optimizer updates leaves; a result such as torch.randn(3, requires_grad=True) * 0.1, or .to(device) of a "
        "parameter, is computed anew from them",
        "Make it a leaf: compute the numbers first, then torch.nn.Parameter(numbers) or "
        "numbers.detach().requires_grad_(), and give that to the optimizer.",
        find=_made_of_a_leaf,
        fix_there="Create the leaf last, in {at}: {new}.",
        new=lambda raised, at: as_leaf(at),
    ),
    Message(
        r"NoneType.*\n.*?(?P<owner>[\w.\[\]]+)\.grad\b",
        "{owner}.grad is None where it is used",
        "backward() fills .grad of leaves that require grad and that the output depends on, and of no other tensor",
        "Call backward() before this line. If {owner} is the result of an operation, make it a leaf, or call {owner}.retain_grad() "
        "before backward(). If the output need not depend on it in every step, leave out what has no gradient: if {owner}.grad is "
        "not None.",
        ("none-grad", "nonleaf-parameter"),
    ),
    Message(
        "Inference tensors cannot be saved for backward|Inplace update to inference tensor|[Ii]nference tensors? ",
        "a tensor made in torch.inference_mode() is used where autograd records",
        "such a tensor has no version and can never take part in a graph",
        "Make it under torch.no_grad() instead of inference_mode(), or give a copy to the recorded part: x.clone().",
        find=_in_file(inference_modes),
        fix_there="In {at}, use torch.no_grad() instead of inference_mode(); or give a copy, x.clone(), to {line}.",
        new=_swapped("inference_mode", "no_grad"),
    ),
    Message(
        "Only Tensors created explicitly by the user .* support the deepcopy protocol",
        "copy.deepcopy met a tensor with a graph",
        "only leaves can be copied so: something that is copied holds the result of an operation",
        "Store x.detach() (or x.item()) instead of x in what is copied, or copy a module's state_dict().",
        find=lambda context, raised: _where(raised.source if raised.missing else None),
        fix_there="In front of {at}, detach what is copied: {code} = {code}.detach(). Or store it so where it is made.",
        new=_swapped("^", "{code} = {code}.detach()\n"),
    ),
    Message(
        r"Can't call numpy\(\) on Tensor that requires grad",
        "NumPy was given a tensor that requires grad",
        "autograd does not see what NumPy computes",
        "Hand over x.detach().cpu().numpy() where no gradient has to pass; else compute it with torch functions.",
    ),
    Message(
        r"'(?P<kind>(?:float|int|numpy\.\w+|ndarray|NoneType))' object has no attribute 'backward'",
        "backward() was called on a {kind}, which has no graph",
        "a number taken out of a tensor, by .item(), float() or NumPy, does not know how it was computed",
        "Call backward() on the tensor itself, and use .item() only to print or add up: loss.backward(); total += "
        "loss.item().",
    ),
    Message(
        r"Boolean value of Tensor .*\n(?P<kind>\w+)\.__init__|'(?P<module>\w+)' object has no attribute '(?:backward|item)'",
        "{kind}{module} is made where it should be called",
        "the parentheses behind the class take the settings of the module; the one that is made takes tensors",
        "Make the module first, then call it: criterion = torch.nn.MSELoss(), then loss = criterion(prediction, target).",
        find=_uncalled,
        fix_there="Make it, then call it, in {at}: {new}.",
        new=_called,
    ),
    Message(
        r"\b(?:builtin_function_or_method|'method'|method\.__)",
        "a method is used in place of what it returns",
        "without () a method is named and not called",
        "Call it, as in loss.item().",
        find=_uncalled,
        fix_there="Call the method, in {at}: {new}.",
        new=_called,
    ),
    Message(
        r"hook '(?P<hook>.*?)' has changed the (?P<what>\w+) of value",
        "the hook {hook} returns a gradient of another {what}",
        "what a hook returns takes the place of the gradient that it was given, and has its shape and dtype",
        "Return a gradient like the one that the hook is given; a hook that only looks returns None.",
    ),
    Message(
        "all elements of (?:input|target) should be between 0 and 1",
        "binary_cross_entropy was given numbers outside of 0 to 1",
        "it takes probabilities, and its input are scores as a layer gives them, or NaN",
        "Use torch.nn.BCEWithLogitsLoss, which takes scores, in place of BCELoss; or give it torch.sigmoid(scores).",
    ),
    Message(
        r"Function '(?P<op>\w+?)Backward\d*' returned nan values in its (?P<index>\d+)th output",
        "backward makes NaN in {op}",
        "anomaly detection found that this operation gives NaN for its input {index}",
        "Keep its input away from where its slope is infinite or undefined, as torch.sqrt(x.clamp(min=1e-6)) does.",
        ("nonfinite",),
    ),
    Message(
        "save_for_backward can only save (?:variables|tensors)",
        "ctx.save_for_backward() was given something that is no tensor",
        "it keeps tensors only",
        "Set other values as attributes, ctx.scale = scale, and give save_for_backward() the tensors.",
    ),
    Message(
        "Legacy autograd function with non-static forward method",
        "a custom Function has a forward() that is no static method",
        "a Function is never made into an object: autograd calls forward(ctx, ...) and backward(ctx, ...) of the class",
        "Write @staticmethod above both, with ctx as first argument, and call it with Mine.apply(x) in place of "
        "Mine()(x).",
    ),
    Message(
        "trying to differentiate twice a function that was marked with @once_differentiable",
        "a second derivative runs through a custom Function that has none",
        "its backward() is marked with @once_differentiable, so autograd did not record it",
        "Take the mark away and compute its backward() with torch functions only; else leave out create_graph=True.",
    ),
    Message(
        r"step\(\) has already been called since the last update\(\)|unscale_\(\) (?:has already been|is being) called",
        "a GradScaler was not updated before its next step",
        "it takes one unscale_() and one step() for each optimizer until update() is called",
        "Call scaler.update() once in every step, after scaler.step(optimizer), and scaler.unscale_(optimizer) at "
        "most once before it.",
    ),
    Message(
        "No inf checks were recorded|Attempted .*but _scale is None",
        "a GradScaler was told to step, and has scaled no loss",
        "it finds no gradient of a scaled loss",
        "Call scaler.scale(loss).backward() in place of loss.backward(), with the parameters that the optimizer holds in the loss.",
        find=lambda context, raised: _where(context.backward),
        fix_there="In {at}, call scaler.scale(loss).backward() in place of loss.backward().",
    ),
    Message(
        "Attempting to unscale FP16 gradients",
        "a GradScaler was given a model whose parameters are half precision",
        "it needs gradients in float32: parameters stay in float32, and autocast picks the operations that run in half",
        "Leave out model.half(), and run the forward pass inside `with torch.autocast('cuda', dtype=torch.float16):`.",
    ),
    Message(
        r"(?:expected (?:m1 and m2|mat1 and mat2|scalar type)|mat1 and mat2 must have the same dtype).*",
        "tensors of two dtypes meet in one operation",
        "an operation needs its tensors in one dtype, but for the few that promote them",
        "Give all of them one dtype, such as x.float() for data from NumPy, which is float64.",
        find=lambda context, raised: _where(raised.made if raised.missing else None),
        fix_there="{missing} is float64, as data from NumPy is. Behind {at}, convert it: {code} = {code}.float().",
        new=_swapped("$", "\n{code} = {code}.float()"),
    ),
    Message(
        "optimizer got an empty parameter list",
        "an optimizer was given no parameter",
        "parameters() of a module lists what is assigned as nn.Parameter or nn.Module: not plain tensors, nor layers "
        "in a list",
        "Use torch.nn.Parameter for tensors, and torch.nn.ModuleList or ModuleDict for layers. parameters() can be "
        "gone through once only: make a list of it to use it twice.",
        find=_used_up,
        fix_there="In {at}, keep a list, since parameters() can be gone through once only: {new}.",
        new=_swapped(_KEPT, r"= list(\1)"),
    ),
    Message(
        "[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients",
        "an integer or boolean tensor was told to require grad",
        "gradients exist for floating-point numbers only",
        "Leave requires_grad out for indices, labels and masks; for numbers, use x.float() first.",
    ),
    Message(
        "you can only change requires_grad flags of leaf variables",
        "requires_grad was changed on the result of an operation",
        "whether a result requires grad follows from what it was computed from",
        "Use x = x.detach() to cut the graph there; freeze parameters with requires_grad_(False) before they are used.",
    ),
    Message(
        r"Mismatch in shape: grad_output\[\d+\] has a shape of (?P<got>.*?) and output\[\d+\] has a shape of "
        r"(?P<want>[^.]*)",
        "the gradient given to backward has another shape than {name}",
        "it has {got}, and the output has {want}",
        "Give a gradient of the output's shape, such as torch.ones_like(output).",
    ),
    Message(
        r"derivative for '?(?P<op>[\w:]+)'? is not implemented",
        "{op} cannot be differentiated here",
        "torch has no formula for it; for a fused attention it is the second derivative that is missing",
        "Use another implementation: for attention, run the forward pass inside `with "
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`.",
    ),
    Message(
        r"use_reentrant=True, torch.utils.checkpoint is incompatible|Checkpointing is not compatible with",
        "a reentrant checkpoint lies behind a backward with inputs",
        "autograd.grad and backward(inputs=...) cannot run through it",
        "Pass use_reentrant=False to the checkpoint.",
        find=_passes(use_reentrant="True"),
        fix_there="In {at}, pass use_reentrant=False to the checkpoint.",
        new=_swapped("use_reentrant=True", "use_reentrant=False"),
    ),
    Message(
        r"none of output has requires_grad=True, this checkpoint\(\) is not necessary",
        "a reentrant checkpoint is around something that needs no gradient",
        "nothing that it computes depends on a parameter or input that requires grad",
        "Pass use_reentrant=False to the checkpoint, or call the function without it.",
    ),
    Message(
        "different number of tensors was saved during the original forward and recomputation|save more tensors "
        "during recomputation|Recomputed values for the following tensors have different metadata",
        "what runs in a checkpoint takes another way when backward runs it again",
        "backward computes the tensors of a checkpoint a second time, and the two passes have to agree; what decides "
        "the way has changed in between: a number from Python's or NumPy's generator, which is not set back as "
        "torch's is, a counter, a cache, or a shape",
        "Decide in front of the checkpoint, and give the decision to the function as an argument, so that both "
        "passes have the same.",
        find=_in_file(draws_by_chance),
        fix_there="In {at}, another number is drawn the second time ({text}). Draw it in front of the checkpoint and "
        "give it to the function as an argument; or draw with torch.rand(()), whose generator the checkpoint sets back.",
    ),
    Message(
        "cannot register a hook on a tensor that doesn't require grad|can't retain_grad on Tensor that has "
        "requires_grad=False",
        "a tensor without a graph was asked to keep or show its gradient",
        "no gradient comes to a tensor that does not require grad: it is data, detached, or was made without recording",
        "For data, call x.requires_grad_() before the forward pass; a result needs recording where it is made, "
        "without no_grad() or .detach(). Else leave this line out: if x.requires_grad: x.retain_grad().",
    ),
    Message(
        "assigned grad has data of a different (?P<what>\\w+)|attempting to assign a gradient of (?P<kind>\\w+)",
        ".grad was given a tensor of another {what}{kind} than its parameter has",
        "the gradient of a leaf has the shape, dtype and device of the leaf",
        "Assign one like the parameter: p.grad = gradient.reshape(p.shape).to(p).",
    ),
    Message(
        "more than one element of the written-to tensor refers to a single memory location",
        "an expanded tensor is changed in place",
        "expand() repeats numbers without copying them, so a change of one would be a change of all",
        "Change a copy: x = x.clone() in front of this line; or write x = x + change in place of x += change.",
    ),
    Message(
        r"only one element tensors can be converted to Python scalars|a Tensor with \d+ elements cannot be converted "
        r"to Scalar",
        "a tensor of several numbers was taken for one number",
        "item(), float() and int() take one number out of a tensor that has one",
        "Reduce it first, as in losses.mean().item(); .tolist() gives all numbers. A loss made with reduction='none' "
        "needs that, too.",
        find=_UNREDUCED,
        fix_there="In {at}, leave out what asks for a loss for each sample ({text}); or reduce it in {line}, as in "
        "losses.mean().item().",
        new=_REDUCED,
    ),
    Message(
        "must override the setup_context staticmethod",
        "a transform of torch.func met a custom Function in the older form",
        "vmap, grad and the others need forward(*arguments), without ctx, and a setup_context() of its own",
        "Write forward(*arguments) without ctx, and @staticmethod def setup_context(ctx, inputs, output), which "
        "saves what backward() needs; set generate_vmap_rule = True in the class for vmap.",
    ),
    Message(
        r"Target size \(torch.Size\((?P<want>\[.*?\])\)\) must be the same as input size \(torch.Size\((?P<got>\[.*?\])\)\)",
        "the loss is given scores of shape {got} and targets of shape {want}",
        "this loss compares element with element; squeeze() without an argument also takes the batch away where it has one sample",
        "Give both one shape: squeeze(-1) in place of squeeze(), which leaves the batch; or target.view_as(scores) where the order "
        "is the same.",
    ),
    Message(
        r"Expected input batch_size \((?P<got>\d+)\) to match target batch_size \((?P<want>\d+)\)",
        "the loss is given scores for {got} samples and labels for {want}",
        "something between data and loss makes {got} rows of {want}: mostly a view or reshape whose numbers do not fit, so that "
        "its -1 takes up the rest in the dimension of the samples",
        "Keep the samples apart in every view: x.flatten(1), or x.view(x.size(0), -1), and let the next layer take as many "
        "features as come. For scores of a sequence, flatten scores and labels alike.",
    ),
    Message(
        r"Tried to step (?P<got>\d+) times. The specified number of total steps is (?P<want>\d+)",
        "the schedule was made for {want} steps and is stepped once more",
        "OneCycleLR counts calls of its step(), and total_steps says how many there will be: it was given the number of epochs "
        "and is stepped after every batch, or the run goes on longer",
        "Make it with total_steps=epochs * len(loader), or with epochs=epochs, steps_per_epoch=len(loader).",
    ),
    Message(
        r"mat1 and mat2 shapes cannot be multiplied \((?P<got>\w+) and (?P<want>\w+)\)",
        "a layer is given another number of features than it was made for",
        "a matrix of {got} meets a weight of {want}: the second number of the first has to be the first of the second",
        "Make the layer with as many input features as come, or flatten what comes: x.flatten(1) after convolutions, which leaves "
        "the samples apart.",
    ),
    Message(
        "multi-target not supported|target tensor expected, multi-target",
        "cross entropy is given labels with a dimension too many",
        "it takes one class number for each sample, of shape (N,), or a probability for each class, of the shape of the scores",
        "Take the dimension away, as in labels.squeeze(1); for one-hot labels, labels.argmax(1), or labels.float().",
    ),
    Message(
        r"(?:target dtype to be|scalar types?:?|index tensor of type|Expected dtype) (?:Long|int32)",
        "an index or label is not of an integer dtype",
        "class numbers and indices are torch.long: a loss, an embedding or gather() looks something up with them",
        "Convert them where they are made: labels.long(). Probabilities for each class are of the shape of the scores.",
    ),
    Message(
        "index out of range in self",
        "an embedding is given an index that it has no row for",
        "indices go from 0 to num_embeddings - 1; ids that are added later, for padding or unknown words, count, too",
        "Make it with as many rows as there are ids, num_embeddings=ids.max() + 1 or the size of the vocabulary.",
    ),
    Message(
        r"Target (?P<target>-?\d+) is out of bounds",
        "the loss is given label {target}, for which there is no class",
        "labels go from 0 to the number of scores less one; only ignore_index is left out, which is -100 unless it is passed",
        "Count the classes from 0 (labels - 1 where they begin at 1), and let the last layer give a score for each. If {target} "
        "marks padding, pass ignore_index={target}.",
    ),
    Message(
        r"(?:DefaultCPUAllocator|CUDA out of memory).*?ried to allocate (?P<asked>[\d.]+ \w+)",
        "out of memory: {asked} could not be allocated",
        "this line alone asked for {asked}; the rest is mostly activations saved for backward, and anything earlier steps "
        "kept alive",
        "If {asked} is more than the line needs, compute it in parts. Otherwise run `gradviz saved` on this script with a "
        "smaller batch: it lists saved memory by module, and what a checkpoint would free. If graphs pile up over steps, see the "
        "growing-graph finding.",
    ),
    Message(
        r"Expected to have finished reduction in the prior.*did not receive grad for rank \d+: (?P<indices>[\d ]*\d)",
        "DistributedDataParallel fails: the step before computed no gradient for its parameters {indices}",
        "every parameter that DistributedDataParallel holds has to get a gradient in every step",
        "Let the loss use these parameters (numbers count those of model.parameters() that require grad, from 0), or remove them. "
        "Where they take turns, pass find_unused_parameters=True.",
        ("unused-parameter",),
    ),
    Message(
        "Found dtype (?P<got>\\w+) but expected (?P<want>\\w+)",
        "backward meets {got} where the forward pass had {want}",
        "a loss between tensors of two dtypes works forward, and its gradient has the wrong one",
        "Give both arguments of the loss one dtype: target.to(prediction.dtype).",
    ),
    Message(
        "Expected all tensors to be on the same device",
        "tensors of two devices meet in one operation",
        "an operation needs all its tensors on one device",
        "Move data and model to one device with .to(device), before the optimizer is made.",
    ),
    Message(
        "cannot assign .* as parameter",
        "a tensor is assigned in place of a registered parameter",
        "a module takes nn.Parameter under that name, and those are leaves",
        "For a trained leaf, assign torch.nn.Parameter(t). To keep the graph of t, call the module with "
        "torch.func.functional_call(module, {{'weight': t}}, x) instead.",
    ),
    Message(
        "Output \\d+ of Unbind\\w* is a view",
        "a part of a tensor that is gone through is changed in place",
        "a loop over a tensor gives views of it, several from one operation, whose change autograd cannot follow",
        "Change the tensor as a whole, before it is gone through, as in rows = rows + change; or collect the new "
        "parts in a list and use torch.stack(parts) behind the loop. A change of a copy would not be seen in the "
        "tensor itself.",
    ),
    Message(
        "is a view and (?:is being|its base or another view).*modified in-?place",
        "a view from a function that gives several is changed in place",
        "unbind, split and the like give views whose change autograd cannot follow",
        "Change a copy: x = x.clone() before the line, or make a new tensor instead of changing it.",
    ),
    Message(
        "does not require grad and does not have a grad_fn",
        "{name} has no graph, so backward() cannot begin at it",
        "nothing that it was computed from requires grad, or its graph was dropped on the way",
        "Compute it from the parameters without no_grad(), .detach(), .item(), argmax or a comparison on the way.",
        ("no-graph",),
    ),
    Message(
        "has been modified by an inplace operation",
        "a tensor that backward needs was changed in place",
        "it had been saved in the forward pass, and its version is another one now",
        "Change a copy, x = x.clone(), or write x = x + 1 instead of x += 1; call every backward() before the step() "
        "that changes its weights.",
        ("stale-saved",),
    ),
    Message(
        "backward through the graph a second time|saved tensors after they have already been freed",
        "backward() ran a second time through the same graph",
        "the first time has freed what was saved",
        "Compute the output again in every step; detach what is carried from step to step; or retain_graph=True in "
        "the first call.",
        ("freed-graph",),
    ),
)


@check(
    "raised",
    "error",
    "the script failed with an exception that autograd or an optimizer raised",
)
def raised_exception(context: CheckContext) -> Diagnoses:
    """The exception that ended the script is one that is understood: what was refused,
    why, and what to do instead.

    Among them: backward from something that is no single number, a gradient of what was
    not used, a custom Function that returns the wrong number of gradients, a leaf
    changed in place, a `.grad` that is None, an optimizer with tensors that are no
    leaves, tensors made in inference mode, and copies of tensors with a graph. The
    traceback's line is named, or that of the custom Function. What another check says
    more exactly (`no-graph`, `stale-saved`, `freed-graph`) is not said twice.

    How it is found: The message of the exception is compared with those that autograd,
    optimizers and tensors are known to raise; names and shapes come from the frames of
    the traceback. Any other exception out of a backward call is told as it is.

    What to do: What the finding says: the cure differs from message to message.

    When to ignore it: Never: the script has failed.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    loss = (model(torch.ones(2, 3)) - 1).square()
    loss.backward()
    ```
    """
    raised = context.record.raised
    if raised is None:
        return
    text = f"{raised.text}\n{raised.within}{raised.source.text if raised.source is not None else ''}"
    told = understood(text, _KNOWN) or ((_BACKWARD, {}) if raised.backward else None)
    if told is not None:
        yield _explained(*told, context, raised)


def _explained(
    known: Message,
    parts: dict[str, str],
    context: CheckContext,
    raised: Raised,
) -> Diagnosis:
    shape = (
        f"({', '.join(map(str, raised.shape))}{',' if len(raised.shape) == 1 else ''})"
    )
    words = {
        key: one_line(value.splitlines()[0] if value else "")
        for key, value in parts.items()
    }
    name = listed(raised.outputs) or "the output"
    words["asked"] = re.sub(
        r"^(\d+) bytes",
        lambda found: bytes_text(int(found[1])),
        words.get("asked", ""),
    )
    words |= {
        "name": name,
        "missing": listed(raised.missing) or "an input",
        "shape": shape,
    }
    lines = known.find(context, raised)
    new = [known.new(raised, at) for at in lines]

    for there in lines[:1]:
        words |= {
            "at": listed(map(line, lines)),
            "text": one_line(there.text),
            "line": line(raised.source),
        }
        words |= {
            "code": _refused(raised),
            "new": one_line("; ".join(new)),
        }

    said = shorten(
        one_line((raised.text.splitlines() or [""])[0]),
        160,
        placeholder=" …",
    )
    # a leaf is told here
    results = {
        None,
        *all_names(tensor for tensor in context.named_tensors if not tensor.leaf),
    }

    return Diagnosis(
        known.summary.format(**words),
        raised.missing or raised.outputs,
        f"{code(raised.source)} raised {raised.kind}: {said}; {known.why.format(**words)}",
        (known.fix_there if lines else known.fix).format(**words),
        source=next(iter(lines), raised.custom or raised.source),
        follows=known.said_by
        if parts.get("owner") in results
        else ("nonleaf-parameter",),
        edit=together([instead(at, text) for at, text in zip(lines, new)]),
    )


def _is_only_reshaped(raised: Raised) -> bool:
    """Whether a gradient has as many elements as its input, in another shape."""
    shapes = re.findall(
        r"\[([\d, ]+)\]",
        raised.text.partition("invalid gradient")[2],
    )
    sizes = [math.prod(int(size) for size in shape.split(",")) for shape in shapes]
    return len(sizes) == 2 and sizes[0] == sizes[1]
