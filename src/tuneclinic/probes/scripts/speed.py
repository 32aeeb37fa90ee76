"""What costs time in every step, and harmless facts that others need: seeds, how checkpoints are loaded."""

from __future__ import annotations

import ast

from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import Source, called, constant, dotted, keyword, last, receiver
from tuneclinic.probes.scripts.distributed import training_loaders

SYNCHRONISES = frozenset({"item", "cpu", "numpy", "tolist", "synchronize"})
PIXEL = 255
SEEDS = frozenset({"manual_seed", "set_seed", "seed_everything", "manual_seed_all", "seed", "random_state"})


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    for loop, _ in source.step_loops:
        report.checked("item-each-step", "empty-cache-each-step")
        for node in source.inside(loop):
            if not isinstance(node, ast.Call) or source.conditional(node, loop):
                continue
            if called(node) in SYNCHRONISES and not node.args and "loss" in receiver(node).lower():
                report.fact("item-each-step", node, f".{called(node)}() waits for the device")
            elif called(node) == "empty_cache":
                report.fact("empty-cache-each-step", node)
    if source.backwards:
        for loader in training_loaders(source):
            if any(item.arg is None for item in loader.keywords):
                continue
            report.checked("workers-zero")
            workers = keyword(loader, "num_workers")
            if workers is None or constant(workers) == 0:
                report.fact(
                    "workers-zero",
                    loader,
                    "num_workers is 0" if workers is not None else "num_workers is not set; the default is 0",
                )
        report.checked("seed-missing")
        if not SEEDS & source.words:
            report.fact("seed-missing", source.backwards[0], "no seed is set")
    for call in source.call("load"):
        if dotted(call.func) == "torch.load":
            report.checked("uses-torch-load")
            given = keyword(call, "weights_only")
            if given is None or constant(given) is False:
                report.fact("uses-torch-load", call)
    _normalised(source, report)


def _normalised(source: Source, report: Report) -> None:
    """Pixels divided by 255 before a processor that divides them again; two Normalize in one transform."""
    for compose in source.call("Compose"):
        report.checked("normalised-twice")
        inner = [node for node in ast.walk(compose) if isinstance(node, ast.Call) and called(node) == "Normalize"]
        if len(inner) > 1:
            report.fact("normalised-twice", inner[1], "two Normalize in one transform")
    for call in source.call("processor", "image_processor", "feature_extractor"):
        if keyword(call, "images") is None and not call.args:
            continue
        report.checked("normalised-twice")
        scaled = [
            node
            for node in source.inside(source.function(call))
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and constant(node.right) == PIXEL
        ]
        images = keyword(call, "images") or (call.args[0] if call.args else None)
        base = last(images)
        if constant(keyword(call, "do_rescale")) is False:
            continue
        for node in scaled:
            holder = next((parent for parent in source.up(node) if isinstance(parent, ast.Assign)), None)
            if holder is not None and base and any(last(target) == base for target in holder.targets):
                report.fact("normalised-twice", node, "the processor rescales by 1/255 too (do_rescale)")
