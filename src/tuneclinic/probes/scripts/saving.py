"""Saving, merging and resuming."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import Source, called, constant, dotted, keyword, last, names, receiver, targets
from tuneclinic.probes.scripts.distributed import training_loaders

CHECKPOINT = pattern(r"checkpoint-\d+")
RESUME = pattern(r"resume", re.IGNORECASE)
HALF = frozenset({"float16", "bfloat16", "half"})


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    _overridden(source, report)
    _merge(source, report)
    _ignored(source, report)
    _weights_only(source, report)
    _sampler(source, report)


def _overridden(source: Source, report: Report) -> None:
    if source.trains or source.call("save_pretrained"):
        report.checked("state-dict-overridden")
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            replaced = [
                target
                for target in targets(node)
                if isinstance(target, ast.Attribute) and target.attr == "state_dict" and dotted(target) != "self.state_dict"
            ]
            if replaced and not isinstance(source.parents.get(node), ast.ClassDef):
                report.fact("state-dict-overridden", node, f"{dotted(replaced[0])} is replaced")


def _quantised(call: ast.Call) -> bool:
    if constant(keyword(call, "load_in_4bit")) is True or constant(keyword(call, "load_in_8bit")) is True:
        return True
    config = keyword(call, "quantization_config")
    return config is not None and constant(config) is not None


def _merge(source: Source, report: Report) -> None:
    merges = source.call("merge_and_unload")
    for merge in merges:
        scope = source.function(merge)
        loads = [
            call
            for call in source.call("from_pretrained")
            if source.function(call) is scope
            and "odel" in dotted(call.func)
            and call.lineno <= merge.lineno
            and called(call.func.value if isinstance(call.func, ast.Attribute) else call) != "PeftModel"
        ]
        loads = [call for call in loads if "Peft" not in dotted(call.func)] or loads
        if not loads:
            continue
        report.checked("merge-into-quantised", "merge-in-half")
        base = loads[-1]
        if _quantised(base):
            report.fact("merge-into-quantised", merge, f"the base is loaded quantised in line {base.lineno}")
        elif last(keyword(base, "torch_dtype") or keyword(base, "dtype")) in HALF:
            report.fact(
                "merge-in-half",
                merge,
                f"the base is loaded as {last(keyword(base, 'torch_dtype') or keyword(base, 'dtype'))} in line {base.lineno}",
            )


def _ignored(source: Source, report: Report) -> None:
    """A resume option that nothing reads."""
    trains = [call for call in source.call("train") if "trainer" in receiver(call).lower()]
    given = [
        call
        for call in source.call("TrainingArguments", "SFTConfig", "DPOConfig")
        if (value := keyword(call, "resume_from_checkpoint")) is not None and constant(value) not in {None, False}
    ]
    if given and trains:
        report.checked("resume-ignored")
        if not any(call.args or call.keywords for call in trains):
            report.fact(
                "resume-ignored",
                trains[0],
                f"resume_from_checkpoint of line {given[0].lineno} is read by trainer.train(resume_from_checkpoint=…) only",
            )
    for call in source.call("add_argument"):
        flags = [text for argument in call.args if isinstance(text := constant(argument), str)]
        option = next((flag for flag in flags if flag.startswith("--") and RESUME.search(flag)), "")
        if not option:
            continue
        destination = constant(keyword(call, "dest"))
        name = destination if isinstance(destination, str) else option.removeprefix("--").replace("-", "_")
        report.checked("resume-ignored")
        passed_on = {"vars", "__dict__", "to_dict", "asdict"} & source.words or any(
            item.arg is None for node in source.nodes if isinstance(node, ast.Call) for item in node.keywords
        )
        if name not in source.words and not passed_on and not _handed(source):
            report.fact("resume-ignored", call, f"{option} is read nowhere")


def _handed(source: Source) -> bool:
    """Whether the parsed arguments leave the script as a whole: `main(args)` of another module, `Config(args)`."""
    parsed = {
        last(target)
        for call in source.call("parse_args", "parse_known_args")
        for parent in source.up(call)
        if isinstance(parent, ast.Assign)
        for target in targets(parent)
    }
    return any(
        isinstance(node, ast.Call)
        and called(node) not in source.functions
        and any(isinstance(argument, ast.Name) and argument.id in parsed for argument in node.args)
        for node in source.nodes
    )


def _weights_only(source: Source, report: Report) -> None:
    if source.backwards:
        loads = [
            call for call in source.call("load_state_dict") if "optim" not in receiver(call).lower() and _resumes(source, call)
        ]
        if loads:
            report.checked("resume-weights-only")
            restored = any("optim" in receiver(call).lower() for call in source.call("load_state_dict", "load"))
            if not restored and not source.call("load_state", "load_checkpoint"):
                report.fact("resume-weights-only", loads[0], "the optimizer's state is not loaded")
        return
    trains = [call for call in source.call("train") if "trainer" in receiver(call).lower()]
    for call in source.call("from_pretrained"):
        path = constant(source.value(call.args[0])) if call.args else ...
        if trains and isinstance(path, str) and CHECKPOINT.search(path) and "okenizer" not in dotted(call.func):
            report.checked("resume-weights-only")
            if not any(item.args or item.keywords for item in trains):
                report.fact(
                    "resume-weights-only",
                    call,
                    "weights of a checkpoint, without its optimizer state, schedule and data position",
                )


def _resumes(source: Source, call: ast.Call) -> bool:
    if any(RESUME.search(name) for name in names(call)):
        return True
    return any(
        isinstance(parent, ast.If) and any(RESUME.search(name) for name in names(parent.test)) for parent in source.up(call)
    )


def _sampler(source: Source, report: Report) -> None:
    """A shuffled loader without a seed, in a script that skips the batches it has seen."""
    skips = bool(source.call("skip_first_batches", "islice")) or any(
        True
        for node in source.nodes
        if isinstance(node, ast.If)
        and any(isinstance(item, ast.Continue) for item in node.body)
        and any(RESUME.search(name) or name.startswith("start") for name in names(node.test))
    )
    if not skips or not source.backwards or not any(RESUME.search(word) for word in source.words):
        return
    report.checked("random-sampler-unseeded-resume")
    seeded = {"manual_seed", "set_seed", "seed_everything", "set_epoch", "Generator", "use_seedable_sampler"} & source.words
    for loader in training_loaders(source):
        if constant(keyword(loader, "shuffle")) is True and keyword(loader, "generator") is None and not seeded:
            report.fact("random-sampler-unseeded-resume", loader, "the order after the resume is another one")
