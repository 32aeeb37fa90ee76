"""What a run was doing when it failed, from the functions on its stack."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuneclinic.patterns import pattern

Frame = tuple[str, str, str, str]
"""Path, line, function, and the source line printed under it."""

FUNCTIONS: tuple[tuple[str, str], ...] = (
    ("save", r"^(_?save(_\w+)?|save_pretrained|_serialize_to_file|torch_save|consolidate\w*|merge_and_unload)$"),
    (
        "evaluation",
        r"^(evaluat(e|ion)(_\w+)?|_?validat(e|ion)(_\w+)?|eval_\w+|prediction_(step|loop)|predict|compute_metrics|test_step)$",
    ),
    (
        "optimizer",
        r"^(optimizer_step|_take_model_step|_init_group|_optimizer_step|unscale_(grads)?_?|_single_tensor_adamw?)$",
    ),
    ("backward", r"^(backward|run_backward|_engine_run_backward|unpack_hook|recompute_fn)$"),
    (
        "data",
        r"^(_next_data|_process_data|fetch|__getitem__|__getitems__|collate\w*|torch_call|_prepare_\w*dataset|map|_map_single|load_dataset|preprocess\w*|tokenize\w*)$",
    ),
    (
        "load",
        r"^(from_pretrained|load_\w*model\w*|_load_\w+|load_state_dict|load_checkpoint|load_adapter|load_model|get_peft_model|_move_model_to_device|dispatch_model)$",
    ),
    ("forward", r"^(forward|_call_impl|_wrapped_call_impl|compute_loss|training_step|_inner_forward|_forward_call)$"),
)
"""Later phases of one step contain earlier ones (an evaluation runs a forward, a backward recomputes one), so the first
match of this order names the phase. Names are those of transformers, accelerate, DeepSpeed, Lightning and torch."""

OPTIMIZER_CALL = pattern(r"\b(optim\w*|opt|scaler)\.step\(")
OPTIMIZER_FILE = pattern(r"optim|adam|sgd|adafactor|lion", re.IGNORECASE)


def phase_of(frames: Sequence[Frame]) -> str:
    """The phase that a stack shows, or "" where it shows none."""
    functions = {function.rsplit(".", 1)[-1] for _, _, function, _ in frames}
    for phase, names in FUNCTIONS:
        if phase == "optimizer" and any(_optimizer(frame) for frame in frames):
            return phase
        if any(re.match(names, function) for function in functions):
            return phase
    return ""


def _optimizer(frame: Frame) -> bool:
    path, _, function, code = frame
    if OPTIMIZER_CALL.search(code):
        return True
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return function == "step" and (OPTIMIZER_FILE.search(name) is not None or "/optim/" in path)
