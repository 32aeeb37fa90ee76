"""Special tokens: padding, markers, new tokens and their embeddings."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import Source, called, constant, dotted, keyword, last, names, targets

TOKENIZER = pattern(r"tokenizer|processor|(?:^|\.)tok$", re.IGNORECASE)
ENGINE = pattern(r"(?:^|\.|_)(?:llm|vllm)\.generate$", re.IGNORECASE)
"""vLLM tokenises the text it is given, special tokens included."""
IGNORED = -100
SHORTEST_MARKER = 5
"""Characters of the shortest marker in use (`USER:`); a letter or a word tokenised alone is an answer or a class."""
OTHER = pattern(r"generation|reward|teacher|ref_|judge", re.IGNORECASE)
EMBEDDINGS = pattern(r"embed|lm_head|wte|output")


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    pad = _pad(source, report)
    collators = source.call("DataCollatorForLanguageModeling", "DataCollatorForCompletionOnlyLM")
    if collators:
        report.checked("pad-is-eos-with-lm-collator")
        plain = [
            call
            for call in collators
            if called(call) == "DataCollatorForCompletionOnlyLM" or constant(keyword(call, "mlm")) is False
        ]
        if pad is not None and plain:
            report.fact(
                "pad-is-eos-with-lm-collator", plain[0], f"pad = eos in line {pad.lineno}; this collator masks every pad id"
            )
    for call in source.call("DataCollatorForCompletionOnlyLM", "train_on_responses_only"):
        given = keyword(call, "response_template") or keyword(call, "response_part") or (call.args[0] if call.args else None)
        text = constant(source.value(given)) if given is not None else ...
        report.fact("response-template-collator", call, text if isinstance(text, str) else "")
    _marker(source, report)
    _start(source, report)
    _double_bos(source, report)
    _new_tokens(source, report)


def _start(source: Source, report: Report) -> None:
    """`add_bos_token=False`, as a keyword or set on the tokenizer."""
    for node in source.nodes:
        given = constant(keyword(node, "add_bos_token")) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Assign) and "add_bos_token" in map(last, targets(node)):
            given = constant(node.value)
        if given is False:
            report.fact("start-token-switched-off", node, "no start token is added")


def _marker(source: Source, report: Report) -> None:
    """A marker that is tokenised alone and then looked for among the ids of a whole text, to mask what stands before it."""
    if not any(constant(node) == IGNORED for node in source.nodes):
        return
    for given in source.assignments.values():
        call = next((node for node in ast.walk(given[-1].value) if isinstance(node, ast.Call)), None) if given[-1].value else None
        text = constant(call.args[0]) if call is not None and call.args and _tokenises(call) else None
        if call is None or not isinstance(text, str) or len(text.strip()) < SHORTEST_MARKER:
            continue
        if constant(keyword(call, "add_special_tokens")) is False:
            report.fact("marker-tokenised-alone", call, "inside a text the marker may get other ids")


def _pad(source: Source, report: Report) -> ast.stmt | None:
    """`tokenizer.pad_token = tokenizer.eos_token`, by text or id."""
    if any(TOKENIZER.search(word) for word in source.words):
        report.checked("pad-is-eos")
    found: ast.stmt | None = None
    for node in source.nodes:
        if not isinstance(node, ast.Assign):
            continue
        pads = any(last(target) in {"pad_token", "pad_token_id"} and not OTHER.search(dotted(target)) for target in targets(node))
        if pads and last(node.value) in {"eos_token", "eos_token_id"}:
            report.fact("pad-is-eos", node)
            found = found or node
    return found


def _double_bos(source: Source, report: Report) -> None:
    """Text from a chat template that is tokenised again with special tokens."""
    rendered = [call for call in source.call("apply_chat_template") if constant(keyword(call, "tokenize")) is False]
    for call in rendered:
        holder = next((parent for parent in source.up(call) if isinstance(parent, ast.Assign)), None)
        held = {last(target) for target in targets(holder)} if holder is not None else set()
        uses = [
            node
            for node in source.inside(source.function(call))
            if isinstance(node, ast.Call)
            and node.lineno >= call.lineno
            and _tokenises(node)
            and (held & _given(node) or call in ast.walk(node))
        ]
        for use in uses:
            report.checked("double-bos-tokenised")
            if constant(keyword(use, "add_special_tokens")) is not False and use is not call:
                report.fact("double-bos-tokenised", use, "the template's text is tokenised with special tokens added")


def _tokenises(call: ast.Call) -> bool:
    if called(call) in {"encode", "encode_plus", "batch_encode_plus"}:
        return TOKENIZER.search(dotted(call.func)) is not None
    if called(call) == "generate":
        return ENGINE.search(dotted(call.func)) is not None
    return TOKENIZER.search(last(call.func)) is not None


def _given(call: ast.Call) -> set[str]:
    given = [*call.args[:1], *(item.value for item in call.keywords if item.arg == "text")]
    return {name for node in given for name in names(node)}


def _new_tokens(source: Source, report: Report) -> None:
    adds = [
        call
        for call in source.call("add_tokens", "add_special_tokens")
        if TOKENIZER.search(dotted(call.func)) and _new(source, call)
    ]
    models = [
        call
        for call in source.call("from_pretrained", "from_config")
        if "odel" in dotted(call.func) or "CausalLM" in dotted(call.func)
    ]
    if not adds or not models:
        return
    report.checked("tokens-added-without-resize")
    resizes = bool({"resize_token_embeddings", "smart_tokenizer_and_embedding_resize", "resize_embeddings"} & source.words)
    if not resizes:
        report.fact("tokens-added-without-resize", adds[0], "resize_token_embeddings is not called")
    if all(_new(source, add) == {"pad_token"} for add in adds):  # padding is never predicted, so it needs no trained row
        return
    for call in source.call("LoraConfig"):
        report.checked("embeddings-not-saved")
        saved = keyword(call, "modules_to_save")
        listed = (
            {str(constant(node)) for node in ast.walk(saved) if isinstance(node, ast.Constant)} if saved is not None else set()
        )
        unknown = saved is not None and not listed
        named = keyword(call, "target_modules")
        targeted = (
            {str(constant(node)) for node in ast.walk(named) if isinstance(node, ast.Constant)} if named is not None else set()
        )
        if (
            not unknown
            and not any(EMBEDDINGS.search(name) for name in listed | targeted)
            and keyword(call, "trainable_token_indices") is None
            and resizes
        ):
            report.fact("embeddings-not-saved", call, "new tokens, and neither embed_tokens nor lm_head in modules_to_save")


def _new(source: Source, call: ast.Call) -> set[str]:
    """The tokens that a call adds by their own text, by what they are for ("" where it does not tell).

    Tokens that the tokenizer already has under another name (`{"pad_token": tokenizer.eos_token}`) are none, and what cannot
    be read from the script is left out.
    """
    given = source.value(call.args[0] if call.args else None)
    if isinstance(given, ast.Dict):
        pairs = [(str(constant(key)), value) for key, value in zip(given.keys, given.values, strict=True)]
    elif isinstance(given, ast.Call) and called(given) == "dict":
        pairs = [(item.arg or "", item.value) for item in given.keywords]
    elif isinstance(given, (ast.List, ast.Tuple)) or isinstance(constant(given), str):
        pairs = [("", given)] if isinstance(given, ast.expr) else []
    else:
        return set()
    texts = [
        (kind, node)
        for kind, value in pairs
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {kind for kind, _ in texts}
