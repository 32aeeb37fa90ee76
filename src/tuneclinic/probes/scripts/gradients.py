"""What reaches the weights: cut graphs, frozen parameters, half-precision weights, models without their weights."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import (
    FUNCTIONS,
    MODEL,
    Source,
    called,
    constant,
    dotted,
    keyword,
    last,
    names,
    receiver,
    targets,
)
from tuneclinic.probes.scripts.evaluation import _lossy as backwarded
from tuneclinic.probes.scripts.labels import bare, cross_entropies

QUANTISED = frozenset(
    {"BitsAndBytesConfig", "load_in_4bit", "load_in_8bit", "GPTQConfig", "AwqConfig", "prepare_model_for_kbit_training"}
)
TRAINERS = pattern(r"Trainer$")
INPUT_GRADS = frozenset(
    {
        "enable_input_require_grads",
        "prepare_model_for_kbit_training",
        "prepare_model_for_int8_training",
        "make_inputs_require_grad",
        "make_inputs_require_grads",
    }
)


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    _detached(source, report)
    _no_grad(source, report)
    _frozen(source, report)
    _checkpointing(source, report)
    _half(source, report)
    _from_config(source, report)
    _no_loss(source, report)


def _cuts(node: ast.AST | None) -> str:
    """What cuts the graph at the top of an expression: `x.detach()`, `torch.tensor(x)`, `x.data`."""
    if isinstance(node, ast.Call):
        name = called(node)
        if name == "detach" and not node.args:
            return ".detach()"
        if name in {"tensor", "FloatTensor", "Variable"} and node.args and not isinstance(node.args[0], (ast.Constant, ast.List)):
            return f"{dotted(node.func)}(…)"
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return ".data"
    return ""


def _detached(source: Source, report: Report) -> None:
    for backward in source.backwards:
        report.checked("detach-in-loss")
        losses = backwarded(backward)
        for node in source.inside(source.function(backward)):
            if node is backward or getattr(node, "lineno", 0) > backward.lineno:
                continue
            if (
                isinstance(node, ast.Assign)
                and losses & {last(target) for target in targets(node)}
                and (cut := _cuts(node.value))
            ):
                report.fact("detach-in-loss", node, f"{cut} cuts the graph before backward()")
            elif called(node) == "requires_grad_" and isinstance(node, ast.Call) and receiver(node) in losses:
                report.fact("detach-in-loss", node, "a loss that needs requires_grad_ has lost its graph")
            elif isinstance(node, ast.Assign) and any(
                last(target) == "requires_grad" and dotted(target).split(".")[0] in losses for target in targets(node)
            ):
                report.fact("detach-in-loss", node, "a loss that needs requires_grad = True has lost its graph")
    for call, _ in cross_entropies(source):
        logits = source.value(bare(call.args[0])) if call.args else None
        inner = (
            logits.func.value
            if isinstance(logits, ast.Call) and isinstance(logits.func, ast.Attribute) and called(logits) == "detach"
            else None
        )
        if (
            inner is not None
            and source.trains
            and not source.without_grad(call)
            and "logit" in dotted(inner)
            and _in_training(source, call)
        ):
            report.fact("detach-in-loss", logits or call, "the logits are detached before the loss")
    function = source.functions.get("compute_loss")
    if function is not None:
        report.checked("detach-in-loss")
        for node in source.inside(function):
            given = (
                node.value.elts[0]
                if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and node.value.elts
                else getattr(node, "value", None)
            )
            if isinstance(node, ast.Return) and _cuts(given):
                report.fact("detach-in-loss", node, "compute_loss returns a loss without its graph")


def _in_training(source: Source, call: ast.Call) -> bool:
    function = source.function(call)
    return any(source.function(backward) is function for backward in source.backwards) or (
        isinstance(function, FUNCTIONS) and function.name == "compute_loss"
    )


def _no_grad(source: Source, report: Report) -> None:
    """The model's call in the training step under no_grad."""
    for loop, _ in source.step_loops:
        calls = [node for node in source.scope(loop) if source.is_model_call(node)]
        if not calls:
            continue
        report.checked("no-grad-in-forward")
        trained = [node for node in calls if not source.without_grad(node)]
        if not trained:
            report.fact("no-grad-in-forward", calls[0], "every call of the model in the step is under no_grad")
    for name in ("forward", "training_step", "compute_loss", "train_step", "train_epoch"):
        function = source.functions.get(name)
        for decorator in function.decorator_list if function is not None and source.trains else ():
            report.checked("no-grad-in-forward")
            if last(decorator.func if isinstance(decorator, ast.Call) else decorator) in {
                "no_grad",
                "inference_mode",
            } and not _frozen_class(source, function):
                report.fact("no-grad-in-forward", decorator, f"{name} runs without gradients")


def _frozen_class(source: Source, function: ast.AST | None) -> bool:
    """A frozen part (a teacher, a vision tower) may run without gradients."""
    parent = source.parents.get(function) if function is not None else None
    return isinstance(parent, ast.ClassDef) and not any(
        MODEL.search(parent.name) or word in parent.name.lower() for word in ("trainer", "lora")
    )


def _frozen(source: Source, report: Report) -> None:
    if not source.trains:
        return
    freezes = [node for node in source.nodes if _freezes(source, node)]
    if not freezes:
        return
    report.checked("everything-frozen")
    thaws = any(_grants(node) for node in source.nodes)
    adapters = {
        "get_peft_model",
        "PeftModel",
        "LoraConfig",
        "peft_config",
        "add_adapter",
        "inject_adapter_in_model",
    } & source.words
    heads = any(called(node) in {"Linear", "Parameter", "Sequential", "Embedding", "Conv2d", "MLP"} for node in source.nodes)
    if not thaws and not adapters and not heads:
        report.fact("everything-frozen", freezes[0], "nothing is made trainable again")


def _freezes(source: Source, node: ast.AST) -> bool:
    """`for p in model.parameters(): p.requires_grad = False` without a condition, or `model.requires_grad_(False)`."""
    if called(node) == "requires_grad_" and isinstance(node, ast.Call) and node.args:
        return (
            constant(node.args[0]) is False
            and MODEL.search(receiver(node)) is not None
            and not source.conditional(node, source.function(node))
            and "." not in receiver(node).removeprefix("self.")
        )
    if (
        not isinstance(node, ast.For)
        or not isinstance(node.iter, ast.Call)
        or called(node.iter) not in {"parameters", "named_parameters"}
    ):
        return False
    whole = MODEL.search(receiver(node.iter)) is not None and "." not in receiver(node.iter).removeprefix("self.")
    plain = any(
        isinstance(item, ast.Assign) and constant(item.value) is False and last(item.targets[0]) == "requires_grad"
        for item in node.body
    )
    called_ = any(
        isinstance(item, ast.Expr)
        and called(item.value) == "requires_grad_"
        and isinstance(item.value, ast.Call)
        and bool(item.value.args)
        and constant(item.value.args[0]) is False
        for item in node.body
    )
    return whole and (plain or called_) and not source.conditional(node, source.function(node))


def _grants(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign) and any(last(target) == "requires_grad" for target in targets(node)):
        return constant(node.value) is not False
    return (
        isinstance(node, ast.Call) and called(node) == "requires_grad_" and (not node.args or constant(node.args[0]) is not False)
    )


def _checkpointing(source: Source, report: Report) -> None:
    wraps = source.call("get_peft_model")
    if not wraps:
        return
    enables = source.call("gradient_checkpointing_enable")
    configured = [
        call
        for call in source.call("TrainingArguments", "Seq2SeqTrainingArguments")
        if constant(keyword(call, "gradient_checkpointing")) is True and source.call("Trainer", "Seq2SeqTrainer")
    ]
    if not enables and not configured:
        return
    report.checked("checkpointing-without-input-grads")
    reentrant = any(
        constant(value) is False
        for node in source.nodes
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if constant(key) == "use_reentrant"
    )
    reentrant = reentrant or any(
        item.arg == "use_reentrant" and constant(item.value) is False
        for node in source.nodes
        if isinstance(node, ast.Call)
        for item in node.keywords
    )
    if INPUT_GRADS & source.words or reentrant:
        return
    late = [call for call in enables if call.lineno > wraps[0].lineno and source.function(call) is source.function(wraps[0])]
    if late:
        report.fact(
            "checkpointing-without-input-grads", late[0], "turned on after get_peft_model, without enable_input_require_grads()"
        )
    elif configured and not enables:
        report.fact(
            "checkpointing-without-input-grads", configured[0], "through TrainingArguments, without enable_input_require_grads()"
        )


def _half(source: Source, report: Report) -> None:
    if not source.trains or QUANTISED & source.words or {"get_peft_model", "LoraConfig", "PeftModel"} & source.words:
        return
    loads = [call for call in source.call("from_pretrained") if "odel" in dotted(call.func) or "CausalLM" in dotted(call.func)]
    casts = [call for call in source.call("half") if MODEL.search(receiver(call)) and not call.args]
    if loads or casts:
        report.checked("pure-half-weights")
    halves = [call for call in loads if last(keyword(call, "torch_dtype") or keyword(call, "dtype")) in {"float16", "half"}]
    if source.backwards and ({"autocast", "GradScaler"} & source.words or source.call("float")):
        halves = []
    trained = [call for call in halves if _trained(source, call)]
    casts = [call for call in casts if source.backwards]
    for call in (*trained, *casts):
        report.fact("pure-half-weights", call, "the trained weights are float16")


def _trained(source: Source, load: ast.Call) -> bool:
    holder = next((parent for parent in source.up(load) if isinstance(parent, ast.Assign)), None)
    held = {last(target) for target in targets(holder)} if holder is not None else set()
    return any(MODEL.search(name) and not re.search("ref|teacher|reward|old", name) for name in held)


def _from_config(source: Source, report: Report) -> None:
    builds = [call for call in source.call("from_config") if "odel" in dotted(call.func) or "CausalLM" in dotted(call.func)]
    if not builds or not source.trains:
        return
    report.checked("from-config-not-pretrained")
    loads = [call for call in source.call("from_pretrained") if "odel" in dotted(call.func) or "CausalLM" in dotted(call.func)]
    if not loads and not source.call(
        "load_state_dict", "load_checkpoint", "load_model", "load_checkpoint_and_dispatch", "load_checkpoint_in_model"
    ):
        report.fact("from-config-not-pretrained", builds[0], "no weights are loaded anywhere")


def _no_loss(source: Source, report: Report) -> None:
    trainers = [call for name, calls in source.calls.items() if TRAINERS.search(name) for call in calls]
    function = source.functions.get("compute_loss")
    if function is not None:
        report.checked("no-loss-returned")
        if not any(
            isinstance(node, (ast.Return, ast.Raise)) and (isinstance(node, ast.Raise) or node.value is not None)
            for node in source.inside(function)
        ):
            report.fact("no-loss-returned", function, "compute_loss returns nothing")
        return
    for call in trainers:
        given = source.value(keyword(call, "model") or (call.args[0] if call.args else None))
        own = next((cls for cls in source.classes if given is not None and cls.name == called(given)), None)
        forward = (
            next((item for item in own.body if isinstance(item, FUNCTIONS) and item.name == "forward"), None)
            if own is not None
            else None
        )
        if forward is None:
            continue
        report.checked("no-loss-returned")
        words = {word.lower() for word in names(forward)} | {
            str(constant(node)).lower() for node in ast.walk(forward) if isinstance(node, ast.Constant)
        }
        starred = any(item.arg is None for node in ast.walk(forward) if isinstance(node, ast.Call) for item in node.keywords)
        if not any("loss" in word for word in words) and not starred:
            report.fact("no-loss-returned", forward, f"{own.name if own else ''}.forward returns no loss")
