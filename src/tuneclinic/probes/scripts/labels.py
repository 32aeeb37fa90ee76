"""Labels and the loss: the shift, the ignore index, padding, smoothing, logarithms, masks."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import FUNCTIONS, Source, called, constant, dotted, keyword, last, names, targets
from tuneclinic.probes.scripts.evaluation import shifting

RESHAPES = frozenset(
    {
        "view",
        "reshape",
        "contiguous",
        "float",
        "flatten",
        "transpose",
        "permute",
        "to",
        "squeeze",
        "long",
        "cuda",
        "clone",
        "type",
    }
)
LOGITS = pattern(r"logits?$|^(?:lm_)?(?:outputs?|preds?|prediction)$", re.IGNORECASE)
LABELS = pattern(r"labels?$|targets?$|input_ids$|^y$|^ids$", re.IGNORECASE)
CAUSAL = pattern(r"CausalLM|LMHead|GPT(?!Q)|Decoder|Llama|Qwen", re.IGNORECASE)
NOT_CAUSAL = pattern(
    r"MaskedLM|\bmlm\b|mask_token|Seq2Seq|ConditionalGeneration|\bT5|\bBart|SequenceClassification|TokenClassification",
    re.IGNORECASE,
)
TOKENIZES = pattern(r"tokeniz|processor|^encode|^tok$|^__call__$", re.IGNORECASE)
IGNORED = -100
MAKES_TENSORS = frozenset({"tensor", "as_tensor", "LongTensor", "from_numpy", "array", "list"})


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    losses = cross_entropies(source)
    _shift(source, report, losses)
    _shifted_twice(source, report, losses)
    _ignore_index(source, report, losses)
    _padding(source, report, losses)
    _reduction(source, report, losses)
    _logarithm(source, report)
    _causal_mask(source, report)


def cross_entropies(source: Source) -> list[tuple[ast.Call, ast.Call]]:
    """Each computed cross entropy: the call with logits and labels, and the call that set its options (itself, or the class's)."""
    found = [(call, call) for call in source.call("cross_entropy") if len(call.args) >= 2 or keyword(call, "target") is not None]
    for built in source.call("CrossEntropyLoss"):
        parent = source.parents.get(built)
        if isinstance(parent, ast.Call) and parent.func is built:
            found.append((parent, built))
            continue
        holder = next((node for node in source.up(built) if isinstance(node, (ast.Assign, ast.AnnAssign))), None)
        for target in targets(holder) if holder is not None else ():
            found.extend((call, built) for call in source.call(last(target)) if len(call.args) >= 2)
    return found


def bare(node: ast.AST | None) -> ast.AST | None:
    """An expression without reshapes and casts around it."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RESHAPES:
        node = node.func.value
    return node


def _arguments(call: ast.Call) -> tuple[ast.AST | None, ast.AST | None]:
    first = call.args[0] if call.args else keyword(call, "input")
    second = call.args[1] if len(call.args) > 1 else keyword(call, "target")
    return first, second


def _cut(source: Source, node: ast.AST | None) -> bool:
    """Whether a position was cut off anywhere on the way to `node`, two names back."""
    for _ in range(3):
        if node is None:
            return False
        if any(shifting(child) for child in ast.walk(node)):
            return True
        base = bare(node)
        following = source.value(base)
        if following is base:
            return False
        node = following
    return False


def _causal(source: Source) -> bool:
    words = source.words
    return any(CAUSAL.search(word) for word in words) and not any(NOT_CAUSAL.search(word) for word in words)


def _copied_labels(source: Source) -> list[ast.AST]:
    """Places where labels are made from the input ids as they are: `labels = input_ids.clone()`, `x["labels"] = x["input_ids"]`."""
    found: list[ast.AST] = []
    for node in source.nodes:
        if (
            isinstance(node, ast.Assign)
            and any(_is_key(target, "labels") for target in targets(node))
            and _copies_ids(node.value)
        ):
            found.append(node)
        elif isinstance(node, ast.Dict):
            found.extend(
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if constant(key) == "labels" and _copies_ids(value)
            )
        elif isinstance(node, ast.keyword) and node.arg == "labels" and _copies_ids(node.value):
            found.append(node.value)
    return found


def _from_ids(node: ast.AST) -> bool:
    """Whether a statement makes labels from the input ids in any way."""
    if not isinstance(node, ast.Assign) or not any(_is_key(target, "labels") for target in targets(node)):
        return False
    return any(_is_key(child, "input_ids") for child in ast.walk(node.value))


def _is_key(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Subscript):
        return constant(node.slice) == name
    return last(node) == name


def _copies_ids(node: ast.AST) -> bool:
    while isinstance(node, ast.Call):
        if called(node) in {"clone", "copy", "deepcopy", "list", "long", "to"}:
            inner = node.args[0] if called(node) in {"deepcopy", "list"} and node.args else getattr(node.func, "value", None)
            if inner is None:
                return False
            node = inner if not (called(node) == "copy" and node.args) else node.args[0]
        else:
            return False
    return _is_key(node, "input_ids")


def _shift(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    if not _causal(source) or any(shifting_word(word) for word in source.words):
        if losses and _causal(source):
            report.checked("labels-not-shifted")
        return
    copied = _copied_labels(source)
    for call, _ in losses:
        logits, labels = _arguments(call)
        if (
            logits is None
            or labels is None
            or LOGITS.search(dotted(bare(logits))) is None
            or LABELS.search(_key(bare(labels))) is None
        ):
            continue
        report.checked("labels-not-shifted")
        if _cut(source, logits) or _cut(source, labels):
            continue
        same = _key(bare(labels)) == "input_ids" or bool(copied)
        if same and not any(isinstance(node, ast.Slice) and constant(node.lower) == 1 for node in source.nodes):
            report.fact("labels-not-shifted", call, "position t is compared with token t")


def shifting_word(word: str) -> bool:
    """Names that say that something is shifted."""
    return "shift" in word.lower()


def _key(node: ast.AST | None) -> str:
    """`input_ids` of `batch["input_ids"]`, `labels` of `labels`."""
    if isinstance(node, ast.Subscript):
        value = constant(node.slice)
        return value if isinstance(value, str) else _key(node.value)
    return last(node)


def _shifted_twice(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    """Labels that are moved by one in the script and handed to a model that moves them again."""
    _decoder_shifted_twice(source, report, losses)
    if losses or not any("CausalLM" in word or "LMHead" in word for word in source.words):
        return
    handed = [
        value
        for node in source.nodes
        if source.is_model_call(node) and isinstance(node, ast.Call) and (value := keyword(node, "labels")) is not None
    ]
    starred = any(
        item.arg is None
        for node in source.nodes
        if source.is_model_call(node) and isinstance(node, ast.Call)
        for item in node.keywords
    )
    if handed or starred or any(name.endswith("Trainer") for name in source.calls):
        report.checked("labels-shifted-twice")
    else:
        return
    for value in handed:
        if _moved(source.value(bare(value))) and isinstance(bare(value), (ast.Name, ast.Subscript)):
            report.fact("labels-shifted-twice", value, "the model shifts labels itself")
    for node in source.nodes:
        if isinstance(node, ast.Dict):
            pairs = {constant(key): value for key, value in zip(node.keys, node.values, strict=True)}
            if _moved(source.value(pairs.get("labels"))) and _shortened(source.value(pairs.get("input_ids"))):
                report.fact("labels-shifted-twice", pairs["labels"], "the model shifts labels itself")


def _decoder_shifted_twice(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    """Decoder inputs made by moving the labels to the right, and a loss that cuts both sides once more."""
    for move in source.call("shift_tokens_right", "_shift_right"):
        where = source.function(move)
        for call, _ in losses:
            if source.function(call) is not where:
                continue
            report.checked("labels-shifted-twice")
            if all(_cut(source, side) for side in _arguments(call)):
                report.fact("labels-shifted-twice", call, "the decoder's inputs are moved already")


def _unwrapped(node: ast.AST | None) -> ast.AST | None:
    """What stands inside `torch.tensor(...)` and its kin."""
    node = bare(node)
    while isinstance(node, ast.Call) and called(node) in MAKES_TENSORS and node.args:
        node = bare(node.args[0])
    return node


def _moved(node: ast.AST | None) -> bool:
    node = _unwrapped(node)
    return isinstance(node, ast.Subscript) and any(
        isinstance(child, ast.Slice) and constant(child.lower) == 1 and child.upper is None for child in ast.walk(node.slice)
    )


def _shortened(node: ast.AST | None) -> bool:
    node = _unwrapped(node)
    return isinstance(node, ast.Subscript) and any(
        isinstance(child, ast.Slice) and child.lower is None and constant(child.upper) == -1 for child in ast.walk(node.slice)
    )


def _filled(source: Source) -> list[tuple[ast.AST, object]]:
    """Constants that are written into labels: `labels[mask] = -1`, `[-1] * n` beside labels, `masked_fill(mask, -1)`."""
    found: list[tuple[ast.AST, object]] = []
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            found.extend(
                (node, constant(_resolved(source, node.value)))
                for target in targets(node)
                if isinstance(target, ast.Subscript) and LABELS.search(_name(target))
            )
        elif called(node) in {"masked_fill", "masked_fill_"} and isinstance(node, ast.Call) and len(node.args) == 2:
            if isinstance(node.func, ast.Attribute) and LABELS.search(_key(bare(node.func.value))):
                found.append((node, constant(_resolved(source, node.args[1]))))
        elif (
            called(node) == "pad_sequence"
            and isinstance(node, ast.Call)
            and node.args
            and any("label" in name.lower() for name in names(node.args[0]))
        ):
            value = keyword(node, "padding_value")
            found.append((node, 0 if value is None else constant(_resolved(source, value))))
    return found


def _name(target: ast.Subscript) -> str:
    return _key(target.value) if not isinstance(constant(target.slice), str) else ""


def _resolved(source: Source, node: ast.AST) -> ast.AST:
    following = source.value(node)
    return node if following is None else following


def _ignore_index(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    filled = [
        (node, value)
        for node, value in _filled(source)
        if value is not ... and isinstance(value, int) and not isinstance(value, bool)
    ]
    if not losses or not filled:
        return
    report.checked("ignore-index-unset")
    for call, built in losses:
        given = keyword(built, "ignore_index") or keyword(call, "ignore_index")
        value = IGNORED if given is None else constant(_resolved(source, given))
        for node, written in filled:
            fills = called(node) == "pad_sequence" or int(str(written)) < 0
            if value is not ... and fills and written != value:
                report.fact("ignore-index-unset", built, f"labels hold {written}, the loss ignores {value}")


def _padding(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    """Labels copied from padded ids, with nothing that masks the padding."""
    copied = _copied_labels(source)
    if copied or any(_from_ids(node) for node in source.nodes):
        report.checked("pad-in-labels")
    if not copied:
        return
    padded = any(
        constant(keyword(node, "padding")) in {True, "max_length", "longest"}
        for node in source.nodes
        if isinstance(node, ast.Call) and TOKENIZES.search(last(node.func))
    )
    masked = any(constant(node) == IGNORED for node in source.nodes if isinstance(node, (ast.Constant, ast.UnaryOp))) or bool(
        {"IGNORE_INDEX", "ignore_index", "label_pad_token_id", "LABEL_PAD"} & source.words
    )
    collators = {"DataCollatorForLanguageModeling", "DataCollatorForCompletionOnlyLM", "SFTTrainer"} & source.words
    ignores = any(keyword(item, "ignore_index") is not None for pair in losses for item in pair)
    if padded and not masked and not collators and not ignores:
        report.fact("pad-in-labels", copied[0], "padded ids are labels too")


def _reduction(source: Source, report: Report, losses: list[tuple[ast.Call, ast.Call]]) -> None:
    for call, built in losses:
        report.checked("label-smoothing", "loss-summed")
        smoothing = constant(keyword(built, "label_smoothing"))
        if isinstance(smoothing, (int, float)) and smoothing > 0:
            report.fact("label-smoothing", built, f"label_smoothing={smoothing}")
        if constant(keyword(built, "reduction")) == "sum" and not _divided(source, call):
            report.fact("loss-summed", built, 'reduction="sum" and no division after it')
    for call in source.call("TrainingArguments", "SFTConfig", "Seq2SeqTrainingArguments"):
        factor = constant(keyword(call, "label_smoothing_factor"))
        report.checked("label-smoothing")
        if isinstance(factor, (int, float)) and factor > 0:
            report.fact("label-smoothing", call, f"label_smoothing_factor={factor}")


def _divided(source: Source, call: ast.Call) -> bool:
    holder = next(
        (node for node in source.up(call) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.BinOp))), None
    )
    if isinstance(holder, (ast.BinOp, ast.Return)) or holder is None:
        return True
    made = {last(target) for target in targets(holder)}
    for node in source.inside(source.function(call)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and names(node.left) & made:
            return True
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and last(node.target) in made:
            return True
    return False


def _logarithm(source: Source, report: Report) -> None:
    for call in source.call("log"):
        inner = call.args[0] if call.args else getattr(call.func, "value", None)
        if inner is None or last(inner) in {"math", "np", "numpy", "torch", "wandb", "logger"}:
            continue
        value = source.value(bare(inner))
        if called(value) in {"softmax", "sigmoid"} if value is not None else False:
            report.fact("log-of-softmax", call, "log(softmax(x)) underflows where log_softmax(x) does not")
    if source.call("log_softmax", "softmax", "logsigmoid"):
        report.checked("log-of-softmax")


def _causal_mask(source: Source, report: Report) -> None:
    """The script's own attention in a decoder class, without any mask."""
    for cls in source.classes:
        if not CAUSAL.search(cls.name) and "causal" not in cls.name.lower():
            continue
        body = list(ast.walk(cls))
        fused = [node for node in body if isinstance(node, ast.Call) and called(node) == "scaled_dot_product_attention"]
        manual = [
            node
            for node in body
            if isinstance(node, ast.Call) and called(node) == "softmax" and isinstance(source.function(node), FUNCTIONS)
        ]
        attends = fused or [node for node in manual if _scores(source, node)]
        if not attends:
            continue
        report.checked("causal-mask-missing")
        masked = any(
            "mask" in word.lower() or word in {"tril", "triu", "is_causal", "causal"}
            for word in names(cls) | {item.arg or "" for call in fused for item in call.keywords}
        )
        if not masked:
            report.fact("causal-mask-missing", attends[0])


def _scores(source: Source, call: ast.Call) -> bool:
    """Whether a softmax is over `q @ k.transpose(…)`."""
    inner = call.args[0] if call.args else getattr(call.func, "value", None)
    value = source.value(bare(inner))
    return value is not None and any(
        (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)) or called(node) in {"matmul", "bmm"}
        for node in ast.walk(value)
    )
