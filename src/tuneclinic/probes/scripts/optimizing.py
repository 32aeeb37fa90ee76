"""The optimizer step: what it holds, and the order of clearing, scaling, stepping and scheduling."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import Loop, Source, called, constant, dotted, keyword, last, names, receiver, targets

OPTIMIZER_CLASS = pattern(
    r"^(?:Adam\w*|SGD|RMSprop|Adagrad|Lion\w*|Adafactor|PagedAdam\w*|FusedAdam|DeepSpeedCPUAdam|Sophia\w*|Muon|NAdam|RAdam|LBFGS)$"
)
OPTIMIZER = pattern(r"optim|(?:^|\.|_)opt(?:_|$|\d)", re.IGNORECASE)
SCHEDULER = pattern(r"sched", re.IGNORECASE)
WRAPS = frozenset({
    "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "compile", "prepare", "to", "cuda", "train", "eval", "get_peft_model", "prepare_model",
    "initialize", "prepare_model_for_kbit_training", "setup", "setup_module", "DataParallel", "half", "bfloat16", "float", "unwrap_model", "cpu", "module",
})  # fmt: skip
"""Calls that give the same parameters back, wrapped or cast in place."""


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    optimizers = [
        call
        for name, calls in source.calls.items()
        if OPTIMIZER_CLASS.match(name)
        for call in calls
        if call.args or call.keywords
    ]
    _peft(source, report, optimizers)
    _parameters(source, report, optimizers)
    _zero_grad(source, report)
    for loop, _ in source.step_loops:
        _scheduler_order(source, report, loop)
        _accumulation(source, report, loop)
    _multiplied(source, report)
    _scaler(source, report)


def steps(scope: list[ast.AST], pattern: re.Pattern[str]) -> list[ast.Call]:
    """`X.step(...)` calls in `scope` whose X reads like `pattern`."""
    return [
        node
        for node in scope
        if isinstance(node, ast.Call) and called(node) == "step" and pattern.search(receiver(node)) is not None
    ]


def _held(optimizer: ast.Call) -> str:
    """`model` of `AdamW(model.parameters(), …)`; "" where the optimizer is built from anything else."""
    first = optimizer.args[0] if optimizer.args else keyword(optimizer, "params")
    if isinstance(first, ast.Call) and called(first) == "parameters":
        return receiver(first)
    return ""


def _peft(source: Source, report: Report, optimizers: list[ast.Call]) -> None:
    wraps = [call for call in source.call("get_peft_model") if isinstance(source.parents.get(call), ast.Assign)]
    for wrap in wraps:
        scope = source.function(wrap)
        here = [call for call in optimizers if source.function(call) is scope and _held(call)]
        if not here:
            continue
        report.checked("optimizer-before-peft")
        if all(call.lineno < wrap.lineno for call in here) and wrap.args and _held(here[-1]) == dotted(wrap.args[0]):
            report.fact("optimizer-before-peft", here[-1], f"get_peft_model comes {wrap.lineno - here[-1].lineno} lines later")


def _parameters(source: Source, report: Report, optimizers: list[ast.Call]) -> None:
    """The optimizer holds another model than the one trained, or a copy that was replaced afterwards."""
    trained = {
        dotted(node.func)
        for loop, _ in source.step_loops
        for node in source.scope(loop)
        if source.is_model_call(node) and isinstance(node, ast.Call)
    }
    for optimizer in optimizers:
        model = _held(optimizer)
        if not model or not trained or isinstance(source.function(optimizer), ast.Lambda):
            continue
        report.checked("optimizer-wrong-parameters")
        replaced = _replaced(source, model, optimizer)
        if replaced is not None and len(optimizers) == 1:
            report.fact("optimizer-wrong-parameters", optimizer, f"{model} is made anew in line {replaced}")
        elif (
            "." not in model
            and not any("." in name for name in trained)
            and not _related(source, model, trained)
            and len(optimizers) == 1
        ):
            report.fact("optimizer-wrong-parameters", optimizer, f"the loop calls {', '.join(sorted(trained))}")


def _replaced(source: Source, model: str, optimizer: ast.Call) -> int | None:
    for given in source.assignments.get(model, []):
        same = source.function(given) is source.function(optimizer)
        if (
            same
            and given.lineno > optimizer.lineno
            and isinstance(given.value, ast.Call)
            and not source.conditional(given, source.function(given))
        ):
            makes = called(given.value)
            fresh = makes in {"from_pretrained", "from_config", "deepcopy"} or (makes[:1].isupper() and makes not in WRAPS)
            if fresh and len(targets(given)) == 1 and not source.loops(given):
                return given.lineno
    return None


def _related(source: Source, model: str, trained: set[str]) -> bool:
    """Whether one of the trained names and `model` are made of each other, or reach the loop as an argument."""
    if model in trained:
        return True
    for name in {*trained, model}:
        for given in source.assignments.get(name, []):
            if names(given.value) & ({*trained, model} - {name}):
                return True
    arguments = {
        argument.arg for function in source.functions.values() for argument in (*function.args.args, *function.args.kwonlyargs)
    }
    return model in arguments or bool(trained & arguments) or "prepare" in source.calls or "initialize" in source.calls


def _zero_grad(source: Source, report: Report) -> None:
    cleared = bool({"zero_grad", "set_to_none", "optimizer_zero_grad"} & source.words) or any(
        isinstance(node, ast.Assign) and constant(node.value) is None and any(last(target) == "grad" for target in targets(node))
        for node in source.nodes
    )
    for _, backward in source.step_loops:
        scope = [node for loop in source.outer_loops(backward) for node in source.scope(loop)]
        stepping = steps(scope, OPTIMIZER)
        stepping += [
            node for node in scope if called(node) == "step" and receiver(node) == "scaler" and isinstance(node, ast.Call)
        ]
        if not stepping or any("engine" in receiver(node) for node in stepping):
            continue
        report.checked("zero-grad-missing")
        if not cleared and not any(called(node) == "zero_" for node in source.nodes):
            report.fact("zero-grad-missing", stepping[0], "zero_grad is nowhere called")


def _statement(source: Source, node: ast.AST) -> ast.stmt | None:
    return next((parent for parent in (node, *source.up(node)) if isinstance(parent, ast.stmt)), None)


def _block(source: Source, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements that a statement stands in."""
    parent = source.parents.get(statement)
    for name in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return []


def _scheduler_order(source: Source, report: Report, loop: Loop) -> None:
    scope = source.scope(loop)
    optimizing = steps(scope, OPTIMIZER) + [
        node for node in scope if called(node) == "step" and "scaler" in receiver(node) and isinstance(node, ast.Call)
    ]
    optimizing = [node for node in optimizing if not SCHEDULER.search(receiver(node))]
    for scheduling in steps(scope, SCHEDULER):
        statement = _statement(source, scheduling)
        if statement is None or not optimizing:
            continue
        block = _block(source, statement)
        statements = [_statement(source, node) for node in optimizing]
        beside = [other for other in statements if other is not None and other in block]
        if not beside:
            continue
        report.checked("scheduler-before-optimizer")
        if all(block.index(statement) < block.index(other) for other in beside):
            report.fact("scheduler-before-optimizer", scheduling, "the first learning rate is skipped")


def _windows(source: Source, loop: Loop) -> list[tuple[ast.If, ast.expr]]:
    """`if (step + 1) % k == 0:` blocks that hold the optimizer's step, with k."""
    found = []
    for node in source.inside(loop):
        if isinstance(node, ast.If):
            period = next(
                (child.right for child in ast.walk(node.test) if isinstance(child, ast.BinOp) and isinstance(child.op, ast.Mod)),
                None,
            )
            inner = [child for statement in node.body for child in (statement, *source.inside(statement))]
            if period is not None and (
                steps(inner, OPTIMIZER) or any(called(child) == "step" and receiver(child) == "scaler" for child in inner)
            ):
                found.append((node, period))
    return found


def _micro_steps(source: Source, loop: Loop) -> ast.expr | None:
    """The k of `for micro_step in range(k):` around a backward call, where the optimizer steps after the loop."""
    ranged = (
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and called(loop.iter) == "range"
        and len(loop.iter.args) == 1
    )
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or not ranged:
        return None
    accumulates = any(
        "accum" in name.lower() or "micro" in name.lower() for name in names(loop.iter.args[0]) | names(loop.target)
    )
    outer = source.loops(loop)
    stepped = (
        bool(outer) and bool(steps(list(source.inside(outer[0])), OPTIMIZER)) and not steps(list(source.inside(loop)), OPTIMIZER)
    )
    return loop.iter.args[0] if accumulates and stepped else None


def _accumulation(source: Source, report: Report, loop: Loop) -> None:
    if {"Accelerator", "Fabric", "deepspeed"} & source.words:
        return
    inner = _micro_steps(source, loop)
    if inner is not None:
        _divided(source, report, loop, loop, inner)
    for window, period in _windows(source, loop):
        _divided(source, report, loop, window, period)
        scheduling = steps(list(source.inside(loop)), SCHEDULER)
        if scheduling:
            report.checked("scheduler-in-microstep")
        for node in scheduling:
            if window not in source.up(node) and not source.conditional(node, loop):
                report.fact("scheduler-in-microstep", node, "the optimizer steps only every k-th time")


def _divided(source: Source, report: Report, loop: Loop, place: ast.AST, period: ast.expr) -> None:
    """Whether the loss of a micro step is divided by anything, here or in a function of its own."""
    report.checked("accumulation-not-divided")
    for node in source.inside(loop):
        divides = isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.Mult))
        if divides and any("loss" in name.lower() for name in names(node)) and not _logged(source, node):
            return
        if called(node) in source.functions and "loss" in called(node):
            return
    if constant(period) != 1:
        report.fact("accumulation-not-divided", place, f"the loss is not divided by {dotted(period) or constant(period)}")


def _logged(source: Source, node: ast.AST) -> bool:
    """Whether an expression is of a plain number for the log, `loss.item() / n`."""
    return any(called(child) in {"item", "float"} for child in ast.walk(node)) or any(
        called(parent) in {"print", "log", "append", "info"} for parent in source.up(node)
    )


def _multiplied(source: Source, report: Report) -> None:
    """An accelerate-prepared scheduler steps once per process; its total must not have been divided by the processes already."""
    prepares = source.call("prepare")
    for builder in [
        call for name, calls in source.calls.items() if name.startswith("get_") and "schedule" in name for call in calls
    ]:
        holder = next((parent for parent in source.up(builder) if isinstance(parent, ast.Assign)), None)
        held = {last(target) for target in targets(holder)} if holder is not None else set()
        prepare = next((call for call in prepares if held & {last(argument) for argument in call.args}), None)
        if prepare is None:
            continue
        report.checked("scheduler-multiplied")
        if constant(keyword(next(iter(source.call("Accelerator")), prepare), "step_scheduler_with_optimizer")) is False:
            continue
        total = keyword(builder, "num_training_steps")
        expression = source.value(total)
        if expression is None or any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and "num_processes" in names(node)
            for node in ast.walk(expression)
        ):
            continue
        divides = any(
            isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)) and "num_processes" in names(node.right)
            for node in ast.walk(expression)
        )
        if divides:
            report.fact(
                "scheduler-multiplied",
                builder,
                "the total is divided by num_processes, and the prepared scheduler steps once per process",
            )
        elif _counts_shard(source, builder, expression):
            report.fact(
                "scheduler-multiplied",
                builder,
                "the total counts the batches of one process, and the prepared scheduler steps once per process",
            )


def _counts_shard(source: Source, builder: ast.Call, total: ast.AST) -> bool:
    """Whether a `len(loader)` in the total is taken after the loader was prepared, which leaves it 1/N of its length."""
    if any(constant(keyword(call, "split_batches")) is True for call in source.call("Accelerator")):
        return False  # such a scheduler steps once
    named = [source.value(node) for node in ast.walk(total) if isinstance(node, ast.Name)]
    lengths = [call for held in (total, *named) if held is not None for call in ast.walk(held) if called(call) == "len"]
    for prepare in source.call("prepare"):
        holder = next((parent for parent in source.up(prepare) if isinstance(parent, ast.Assign)), None)
        prepared = {last(target) for target in targets(holder)} if holder is not None else set()
        if source.function(prepare) is source.function(builder) and any(
            isinstance(call, ast.Call) and call.args and last(call.args[0]) in prepared and prepare.lineno < call.lineno
            for call in lengths
        ):
            return True
    return False


def _scaler(source: Source, report: Report) -> None:
    built = [call for call in source.call("GradScaler", "ShardedGradScaler") if constant(keyword(call, "enabled")) is not False]
    if not built or not source.backwards:
        return
    report.checked("scaler-misuse")
    scaled = [call for call in source.backwards if isinstance(call.func, ast.Attribute) and called(call.func.value) == "scale"]
    held = {
        last(target)
        for call in built
        for parent in source.up(call)
        if isinstance(parent, ast.Assign)
        for target in targets(parent)
    }
    stepped = [call for call in source.call("step") if last(getattr(call.func, "value", None)) in held]
    if scaled and not stepped:
        report.fact("scaler-misuse", scaled[0], "the loss is scaled, and scaler.step(optimizer) is never called")
    elif stepped and not scaled and not any("scale" in names(call) for call in source.backwards):
        report.fact("scaler-misuse", stepped[0], "scaler.step without scaler.scale(loss).backward()")
    if stepped and not source.call("update"):
        report.fact("scaler-misuse", stepped[0], "scaler.update() is missing")
    clips = source.call("clip_grad_norm_", "clip_grad_value_")
    if scaled and clips and not source.call("unscale_"):
        report.fact("scaler-misuse", clips[0], "gradients are clipped while still scaled: scaler.unscale_(optimizer) is missing")
