"""Generation: padding side, stopping, and what is decoded."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import LOOPS, Source, called, constant, dotted, keyword, last, names, receiver, targets
from tuneclinic.probes.scripts.tokens import TOKENIZER

ENCODER_DECODER = pattern(r"Seq2Seq|ConditionalGeneration|T5|Bart|Whisper|Marian")
FORMATS = pattern(r"template|conv(?:ersation)?s?\b|messages|format|chat|instruct|build_|pipeline|dataset|loader", re.IGNORECASE)
MARKS = pattern(r"<[|｜]|\[INST\]|###|<start_of|(?:User|Human|Assistant|Question|Instruction|用户|问)\s{0,2}[:：]|\{")
CUTS = frozenset({"split", "replace", "partition", "rpartition", "removeprefix", "find", "index", "sub", "rsplit"})
SIZES = pattern(r"pixels|resize|(?:^|_)size$|longest_edge", re.IGNORECASE)
PICTURES = frozenset({"image", "image_url", "input_image", "video"})
MOST_PARTS = 20
MULTIMODAL = pattern(r"Qwen2VL|LlavaFor|Vision2Seq|ImageText")


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    generates = [
        call for call in source.call("generate") if isinstance(call.func, ast.Attribute) and "llm" not in receiver(call).lower()
    ]
    _padding(source, report, generates)
    _stop(source, report, generates)
    _untemplated(source, report, generates)
    _sliced(source, report, generates)
    if generates and not source.trains:
        _pictures(source, report)
    if not source.trains:
        _order_of_parts(source, report)


def _order_of_parts(source: Source, report: Report) -> None:
    """A message whose parts are a text and then a picture."""
    for node in source.nodes:
        if not isinstance(node, ast.List) or not 2 <= len(node.elts) <= MOST_PARTS:
            continue
        kinds = [_kind(part) for part in node.elts]
        if "text" in kinds and any(kind in PICTURES for kind in kinds[kinds.index("text") :]) and not PICTURES & {kinds[0]}:
            report.fact("text-before-picture", node, "the picture follows the text")


def _kind(part: ast.AST) -> str:
    """The `type` of a part of a message."""
    if not isinstance(part, ast.Dict):
        return ""
    return next((str(constant(value)) for key, value in zip(part.keys, part.values, strict=True) if constant(key) == "type"), "")


def _pictures(source: Source, report: Report) -> None:
    """A processor of pictures that is loaded as it was saved, in a script that nowhere speaks of a size."""
    if any(SIZES.search(word) for word in source.words) or any(SIZES.search(str(constant(node))) for node in source.nodes):
        return
    for call in source.call("from_pretrained"):
        if receiver(call).endswith("Processor") and not any(SIZES.search(item.arg or "") for item in call.keywords):
            report.fact("processor-default-pixels", call, "pictures are sized by the processor's own file")


def _padding(source: Source, report: Report, generates: list[ast.Call]) -> None:
    sides = [
        (node, constant(node.value))
        for node in source.nodes
        if isinstance(node, ast.Assign) and any(last(target) == "padding_side" for target in targets(node))
    ]
    keywords = [
        (node, constant(value))
        for node in source.nodes
        if isinstance(node, ast.Call) and (value := keyword(node, "padding_side")) is not None
    ]
    padded = [
        call for call in _tokenised(source, generates) if constant(keyword(call, "padding")) in {True, "longest", "max_length"}
    ]
    if not padded:
        return
    report.checked("padding-side-right-generation")
    _mask(source, report, generates, padded)
    set_ = [*sides, *keywords]
    if set_ and all(side == "right" for _, side in set_) and not any(ENCODER_DECODER.search(word) for word in source.words):
        report.fact("padding-side-right-generation", set_[-1][0], f"generate() in line {generates[0].lineno} gets padded prompts")


def _mask(source: Source, report: Report, generates: list[ast.Call], padded: list[ast.Call]) -> None:
    """Padded ids handed over alone: the library guesses the mask from the pad token, and cannot where that is the end token."""
    pads = [
        node
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and last(node.value) in {"eos_token", "eos_token_id"}
        and any(last(target) in {"pad_token", "pad_token_id"} for target in targets(node))
    ]
    if not pads:
        return
    for call in generates:
        given = [*call.args[:1], *(item.value for item in call.keywords if item.arg in {"inputs", "input_ids"})]
        alone = bool(given) and all(_ids_alone(node) for node in given)
        unpacked = any(item.arg is None for item in call.keywords)
        if alone and not unpacked and keyword(call, "attention_mask") is None:
            where = f"prompts padded in line {padded[0].lineno} are given without their attention mask, and pad = eos"
            report.fact("padding-side-right-generation", call, where)


def _ids_alone(node: ast.AST) -> bool:
    """`batch["input_ids"]` or `batch.input_ids`, moved to a device or not."""
    if isinstance(node, ast.Call) and called(node) in {"to", "cuda"} and isinstance(node.func, ast.Attribute):
        return _ids_alone(node.func.value)
    if isinstance(node, ast.Subscript):
        return constant(node.slice) == "input_ids"
    return last(node) == "input_ids"


def _tokenised(source: Source, generates: list[ast.Call]) -> list[ast.Call]:
    """The tokenizer calls whose result a `generate` call is given."""
    found: list[ast.Call] = []
    for generate in generates:
        given = {name for argument in (*generate.args, *(item.value for item in generate.keywords)) for name in names(argument)}
        for name in given:
            for assignment in source.assignments.get(name, []):
                if source.function(assignment) is source.function(generate) and assignment.value is not None:
                    found.extend(
                        node
                        for node in ast.walk(assignment.value)
                        if isinstance(node, ast.Call) and TOKENIZER.search(last(node.func))
                    )
    return found


def _untemplated(source: Source, report: Report, generates: list[ast.Call]) -> None:
    """A tokenised text goes to `generate` in a script that nowhere speaks of a template, a conversation or a marker."""
    texts = [node.value for node in source.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if any(FORMATS.search(word) for word in source.words) or any(MARKS.search(text) for text in texts):
        return
    for call in _tokenised(source, generates)[:1]:
        if call.args and isinstance(
            call.args[0], (ast.Name, ast.Attribute)
        ):  # a text that the script puts together may hold anything
            report.fact("generate-without-template", call, "no template is applied in this script")


def _stop(source: Source, report: Report, generates: list[ast.Call]) -> None:
    for call in generates:
        given = keyword(call, "eos_token_id")
        report.checked("generate-without-stop")
        if given is not None and constant(given) is None:
            report.fact("generate-without-stop", call, "eos_token_id=None")
    for call in source.call("SamplingParams"):
        report.checked("generate-without-stop")
        if constant(keyword(call, "ignore_eos")) is True:
            report.fact("generate-without-stop", call, "ignore_eos=True")
    for loop in source.nodes:
        if not isinstance(loop, LOOPS):
            continue
        body = list(source.inside(loop))
        samples = [node for node in body if called(node) in {"multinomial", "argmax"}]
        grows = [node for node in body if called(node) in {"cat", "append", "concat"}]
        limited = isinstance(loop, ast.For) and any(
            re.search(r"max_(?:new_)?(?:tokens|length|len)|num_tokens|steps_to_generate", name) for name in names(loop.iter)
        )
        if samples and grows and limited and any(source.is_model_call(node) or receiver(node) == "self" for node in body):
            report.checked("generate-without-stop")
            ends = any(isinstance(node, (ast.Break, ast.Return)) for node in body) or any(
                "eos" in name.lower() or "stop" in name.lower() or "finished" in name.lower() for name in names(loop)
            )
            if not ends:
                report.fact("generate-without-stop", samples[0], "the loop never looks for the end token")


def _sliced(source: Source, report: Report, generates: list[ast.Call]) -> None:
    """`decode(outputs[0])` of a decoder-only model, with the prompt still in it."""
    if any(ENCODER_DECODER.search(word) for word in source.words) or MULTIMODAL.search(" ".join(source.words)):
        return
    for generate in generates:
        if not isinstance(source.parents.get(generate), ast.Assign) or keyword(generate, "inputs_embeds") is not None:
            continue
        held = {dotted(target) for target in targets(source.parents[generate])}
        scope = source.function(generate)
        for decode in source.call("decode", "batch_decode"):
            if (
                source.function(decode) is not scope
                or decode.lineno < generate.lineno
                or not decode.args
                or dotted(decode.args[0]) not in held
            ):
                continue
            report.checked("prompt-not-sliced")
            rebound = [
                item
                for name in held
                for item in source.assignments.get(name, [])
                if generate.lineno < item.lineno < decode.lineno
            ]
            if rebound or any(isinstance(node, ast.Slice) for node in ast.walk(decode.args[0])) or _cut_later(source, decode):
                continue
            report.fact("prompt-not-sliced", decode, "generate() returns the prompt too")


def _cut_later(source: Source, decode: ast.Call) -> bool:
    for parent in source.up(decode):
        if isinstance(parent, ast.Attribute) and parent.attr in CUTS:
            return True
        if isinstance(parent, ast.Subscript) and parent.slice is not decode:
            return any(isinstance(node, ast.Slice) for node in ast.walk(parent.slice))
        if isinstance(parent, ast.stmt):
            made = {last(target) for target in targets(parent)}
            return any(
                (isinstance(node, ast.Attribute) and node.attr in CUTS and last(node.value) in made)
                or (
                    isinstance(node, ast.Subscript)
                    and last(node.value) in made
                    and any(isinstance(item, ast.Slice) for item in ast.walk(node.slice))
                )
                for node in source.nodes
            )
    return False
