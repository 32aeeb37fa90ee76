"""How a loop evaluates: mode, gradients, what it keeps, and how it scores."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import (
    FROZEN,
    FUNCTIONS,
    LOOPS,
    Function,
    Loop,
    Source,
    called,
    constant,
    dotted,
    keyword,
    last,
    mentions,
    names,
    receiver,
    targets,
)

EVALUATES = pattern(
    r"^_?(?:do_|run_)?(?:eval|evaluate|evaluation|validate|validation|valid|estimate_loss)(?:_|$)|^test(?:_loop|_epoch|_model|_step)?$",
    re.IGNORECASE,
)
HELD_OUT = pattern(r"(?:^|_|\.)(?:val|valid|validation|eval|evaluation|dev|test)(?:_|$|\d)", re.IGNORECASE)
PLAIN = ("item", "detach", "cpu", "numpy", "tolist", "float", "clone", "data", "argmax", "topk")
"""What takes a tensor out of its graph, or makes a number or an id of it."""
LOSS = pattern(r"(?:^|_)loss(?:es)?$|^loss", re.IGNORECASE)
TRANSFORM = pattern(r"transform|preprocess|augment", re.IGNORECASE)


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    regions = list(evaluations(source))
    _eval_mode(source, report, regions)
    _no_grad(source, report, regions)
    _train_restored(source, report)
    _kept(source, report)
    _metric(source, report)
    _preprocessing(source, report)


def evaluations(source: Source) -> Iterator[tuple[Loop, ast.Call]]:
    """Loops that run the trained model over held-out data, each with one call of the model."""
    if not source.backwards:
        return
    for loop in source.nodes:
        if not isinstance(loop, LOOPS):
            continue
        function = source.function(loop)
        named = isinstance(function, FUNCTIONS) and EVALUATES.match(function.name) is not None
        over = isinstance(loop, (ast.For, ast.AsyncFor)) and any(HELD_OUT.search(name) for name in _iterated(loop))
        if not named and not over:
            continue
        body = list(source.inside(loop))
        call = next((node for node in body if source.is_model_call(node) and isinstance(node, ast.Call)), None)
        if call is not None and not any(called(node) == "backward" for node in body):
            yield loop, call


def _iterated(loop: ast.For | ast.AsyncFor) -> set[str]:
    return {dotted(node) for node in ast.walk(loop.iter) if isinstance(node, (ast.Name, ast.Attribute))}


def _around(source: Source, node: ast.AST) -> list[ast.AST]:
    """The function around a node with what it calls, and the functions that call it."""
    function = source.function(node)
    found = source.scope(function)
    for caller in source.callers(function):
        found.extend(source.inside(source.function(caller)))
    return found


def _to_eval(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "eval" and not node.args:
        return FROZEN.search(receiver(node)) is None
    return node.func.attr == "train" and _mode(node) is False


def _mode(call: ast.Call) -> object:
    given = call.args[0] if call.args else keyword(call, "mode")
    return True if given is None else constant(given)


def _eval_mode(source: Source, report: Report, regions: list[tuple[Loop, ast.Call]]) -> None:
    if "LightningModule" in source.words:
        return
    for _, call in regions:
        report.checked("eval-without-eval-mode")
        if not any(_to_eval(node) for node in _around(source, call)):
            report.fact("eval-without-eval-mode", call, f"no {receiver(call) or dotted(call.func)}.eval() before it")


def _no_grad(source: Source, report: Report, regions: list[tuple[Loop, ast.Call]]) -> None:
    for _, call in regions:
        report.checked("eval-without-no-grad")
        clean = source.without_grad(call) or mentions(_around(source, call), "no_grad", "inference_mode", "set_grad_enabled")
        if not clean:
            report.fact("eval-without-no-grad", call)


def _train_restored(source: Source, report: Report) -> None:
    for backward in source.backwards:
        loops = source.outer_loops(backward)
        scopes = [(loop, source.scope(loop)) for loop in loops]
        switched = next((node for _, scope in scopes for node in scope if _to_eval(node)), None)
        if switched is None:
            continue
        report.checked("train-mode-not-restored")
        everything = [node for _, scope in scopes for node in scope] + list(source.inside(source.function(backward)))
        inside = [
            node
            for node in everything
            if any(loop in source.up(node) for loop in loops) or source.function(node) is not source.function(backward)
        ]
        restored = any(
            called(node) == "train"
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _mode(node) is not False
            for node in inside
        )
        if not restored:
            report.fact("train-mode-not-restored", switched, "model.train() is not called again in the loop")


def _kept(source: Source, report: Report) -> None:
    """Losses and outputs that are gathered over steps with their graph."""
    for loop, backward in source.step_loops:
        report.checked("loss-kept-with-graph", "outputs-kept")
        losses = _lossy(backward)
        _gathered(source, report, loop, losses, outputs=_made_by_model(source, loop))
    for loop, call in evaluations(source):
        report.checked("loss-kept-with-graph", "outputs-kept")
        outputs = _made_by_model(source, loop)
        if not source.without_grad(call):
            losses = {name for name in outputs if LOSS.search(name)}
            _gathered(source, report, loop, losses, outputs=outputs - losses)
        elif {"AutoModelForCausalLM", "GPT2LMHeadModel", "LlamaForCausalLM"} & source.words:
            _gathered(
                source,
                report,
                loop,
                set(),
                outputs={name for name in outputs if name.endswith("logits") or name in {"outputs", "output", "out"}},
                detail="on the device",
            )


def _lossy(backward: ast.Call) -> set[str]:
    """Names of what a backward call works on: `loss.backward()`, `accelerator.backward(loss)`, `scaler.scale(loss).backward()`."""
    candidates: list[ast.AST] = list(backward.args[:1])
    if isinstance(backward.func, ast.Attribute):
        value = backward.func.value
        candidates.append(value)
        if isinstance(value, ast.Call):
            candidates.extend(value.args[:1])
    return {node.id for node in candidates if isinstance(node, ast.Name)} - {
        "accelerator",
        "fabric",
        "scaler",
        "engine",
        "model_engine",
        "model",
        "self",
    }


def _made_by_model(source: Source, loop: Loop) -> set[str]:
    """Names that hold what the model returned, or a part of it."""
    made: set[str] = set()
    for node in source.inside(loop):
        if not isinstance(node, ast.Assign):
            continue
        base = node.value
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        if source.is_model_call(base) or (isinstance(base, ast.Name) and base.id in made and not _plain(node.value)):
            made.update(target.id for target in targets(node) if isinstance(target, ast.Name))
    return made


def _plain(node: ast.AST) -> bool:
    """Whether an expression has left the graph somewhere."""
    return any(called(child) in {*PLAIN, "float"} or last(child) == "data" for child in ast.walk(node))


def _gathered(
    source: Source, report: Report, loop: Loop, losses: set[str], *, outputs: set[str], detail: str = "with its graph"
) -> None:
    plain = {
        target.id
        for node in source.inside(loop)
        if isinstance(node, ast.Assign) and _plain(node.value)
        for target in targets(node)
        if isinstance(target, ast.Name)
    }
    backwarded = {name for call in source.backwards for name in _lossy(call) | names(call.func)}
    for node in source.inside(loop):
        kept, into = _addition(node)
        if kept is None or _plain(kept) or into in backwarded or not _outside(source, into, loop) or _joined(source, into):
            continue
        base = _base(kept)
        if base in plain:
            continue
        if base in losses:
            report.fact("loss-kept-with-graph", node, f"{into} keeps {base} {detail}")
        elif base in outputs and isinstance(node, ast.Call):
            report.fact("outputs-kept", node, f"{into} keeps {base} {detail}")


def _addition(node: ast.AST) -> tuple[ast.expr | None, str]:
    """What is added to what: `total += loss`, `losses.append(loss)`, `total = total + loss`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.value, dotted(node.target)
    if isinstance(node, ast.Call) and called(node) == "append" and len(node.args) == 1:
        return node.args[0], receiver(node)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        into = dotted(node.targets[0])
        if isinstance(node.value.left, ast.Name) and node.value.left.id == into:
            return node.value.right, into
    return None, ""


def _base(node: ast.AST) -> str:
    """The name at the bottom of `loss`, `loss / n`, `outputs.loss`, `outputs[0]`; "" for anything else."""
    while True:
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
            node = node.left
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return node.id if isinstance(node, ast.Name) else ""


def _outside(source: Source, name: str, loop: Loop) -> bool:
    """Whether `name` was made before the loop, so that it lives over its steps."""
    given = source.assignments.get(name, [])
    if "." in name:
        return bool(given) and not any(loop in source.up(node) for node in given)
    own = [node for node in given if source.function(node) is source.function(loop)]
    emptied = any(loop in source.up(node) and not isinstance(node.value, ast.BinOp) for node in own)
    return bool(own) and not emptied


def _joined(source: Source, name: str) -> bool:
    """Whether the gathered tensors are joined for a backward pass, which needs their graphs."""
    joins = [call for call in source.call("stack", "cat", "sum") if call.args and dotted(call.args[0]) == name]
    return any(any(called(parent) == "backward" for parent in source.up(call)) or _then_backward(source, call) for call in joins)


def _then_backward(source: Source, call: ast.Call) -> bool:
    holder = next((parent for parent in source.up(call) if isinstance(parent, ast.Assign)), None)
    made = {target.id for target in targets(holder) if isinstance(target, ast.Name)} if holder is not None else set()
    return any(made & _lossy(backward) for backward in source.backwards)


def _metric(source: Source, report: Report) -> None:
    function = source.functions.get("compute_metrics") or _accuracy(source)
    causal = "AutoModelForCausalLM" in source.words or any(
        "LMHeadModel" in word or "ForCausalLM" in word for word in source.words
    )
    other = {"Seq2SeqTrainer", "predict_with_generate", "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification"}
    if function is None or not causal or other & source.words:
        return
    body = source.scope(function)
    everything = body + (
        source.scope(source.functions["preprocess_logits_for_metrics"])
        if "preprocess_logits_for_metrics" in source.functions
        else []
    )
    if not any(called(node) == "argmax" for node in everything):
        return
    compared = [
        node
        for node in body
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and not isinstance(node.comparators[0], (ast.Constant, ast.UnaryOp))
    ]
    compared_ = [*compared, *(node for node in body if called(node) in {"accuracy_score", "compute"})]
    if not compared_:
        return
    report.checked("metric-not-shifted")
    if not any(shifting(node) for node in everything):
        report.fact("metric-not-shifted", compared_[0])


def _accuracy(source: Source) -> Function | None:
    """A function that compares an argmax with labels, in a script that moves nothing anywhere and scores no last position alone."""
    if any(shifting(node) or (isinstance(node, ast.Tuple) and _last_position(node)) for node in source.nodes) or source.call(
        "generate"
    ):
        return None
    for function in source.functions.values():
        body = source.scope(function)
        compares = (node for node in body if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq))
        labels = any("label" in name.lower() for node in compares for name in names(node))
        if labels and any(called(node) == "argmax" for node in body):
            return function
    return None


def _last_position(index: ast.Tuple) -> bool:
    """Whether an index picks one position from the end, as in `logits[:, -1]`."""
    return any(isinstance(part, ast.UnaryOp) for part in index.elts)


def shifting(node: ast.AST) -> bool:
    """Whether a node cuts the first or the last position off: `[:, 1:]`, `[..., :-1, :]`, `roll`, `shift`."""
    if isinstance(node, ast.Slice):
        return constant(node.lower) == 1 or constant(node.upper) == -1
    return called(node) in {"roll", "narrow"} or (isinstance(node, ast.Name) and "shift" in node.id.lower())


def _preprocessing(source: Source, report: Report) -> None:
    """A `Normalize` in the transform of one side that the other lacks, or has with other numbers."""
    sides: dict[str, tuple[ast.AST, set[str]]] = {}
    for name, given in source.assignments.items():
        if (
            TRANSFORM.search(name)
            and given[-1].value is not None
            and any(called(node) == "Compose" for node in ast.walk(given[-1].value))
        ):
            side = "eval" if HELD_OUT.search(name) else "train" if "train" in name.lower() else ""
            if side:
                sides[side] = (given[-1], {ast.dump(node) for node in ast.walk(given[-1].value) if called(node) == "Normalize"})
    if len(sides) == 2:
        report.checked("eval-preprocess-differs")
        if sides["train"][1] != sides["eval"][1]:
            report.fact("eval-preprocess-differs", sides["eval"][0], "Normalize differs from the training transform")
