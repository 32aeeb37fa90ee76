"""Training configurations in JSON: Trainer arguments, LLaMA-Factory and ms-swift arguments, DeepSpeed configurations."""

from __future__ import annotations

from tuneclinic.patterns import pattern
from tuneclinic.probes.frameworks import framework_of
from tuneclinic.probes.readers._settings import Entry, entries_of, named, reading_of, settings_of, stand_in
from tuneclinic.probes.readers._tree import DOCUMENT_BYTES, flat, json_tree
from tuneclinic.probes.reading import Reader, Reading, SourceFile

EXACT = ("training_args.json", "sft_args.json", "llamafactory_args.json", "deepspeed_config.json", "ds_config.json")
"""Names that only a training framework, or its user for it, writes. ms-swift's own is `args.json`."""
FEWEST_KEYS = 3
"""Settings that a file must hold to be taken for a configuration by its keys alone."""
NOT_OURS = pattern(
    r'"(peft_type|architectures|log_history|added_tokens_decoder|tokenizer_class|messages|conversations|instruction|'
    r'train_loss|model_type|transformers_version|post_processor|weight_map|eval_loss)"\s*:'
)
"""Keys of files that hold some of the same words and are no configuration of a run."""
OURS = pattern(
    r'"(per_device_train_batch_size|num_train_epochs|zero_optimization|train_micro_batch_size_per_gpu|finetuning_type|'
    r'sft_type|train_type|tuner_type|gradient_accumulation_steps|lr_scheduler_type|micro_batch_size)"\s*:'
)
"""Keys that only a configuration of a run has."""
DEEPSPEED = pattern(r'"zero_optimization"\s*:\s*\{')
"""A section that nothing but DeepSpeed reads; the shortest files in use hold it and a precision."""
_KEY = pattern(r'"([A-Za-z_][\w.-]{0,60})"\s*:')


class JsonSettings(Reader):
    """JSON configurations of a training run."""

    kind = "configuration (JSON)"
    precedence = 32

    def claims(self, file: SourceFile) -> float:
        """By name for files that only a trainer writes, else by known keys in the head."""
        head = file.head_text.lstrip("\ufeff \r\n\t")
        if not file.base.endswith((".json", ".jsonc")) or file.binary or not head.startswith("{"):
            return 0.0
        if file.base.endswith(EXACT) or file.base == "args.json":
            return 0.9
        keys = set(_KEY.findall(head))
        ours = len(OURS.findall(head))
        if NOT_OURS.search(head) and ours < 2:
            return 0.0
        if DEEPSPEED.search(head):
            return 0.6
        return 0.6 if ours and sum(named(key, "") is not None for key in keys) >= FEWEST_KEYS else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The settings with their lines, nested keys joined by dots; a file that was cut short as far as it goes."""
        try:
            text = file.text(DOCUMENT_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        pointer = stand_in(text)
        if pointer:
            return [Reading(note=pointer)]
        root = json_tree(text)
        if root is None or not isinstance(root.value, dict):
            return [reading_of(settings_of((), "", file.name))]
        framework = framework_of(key for key, _ in flat(root))
        entries = entries_of(root, file.name)
        if framework == "deepspeed":
            entries = _without_switched_off(entries)
        return [reading_of(settings_of(entries, framework, file.name))]


def _without_switched_off(entries: list[Entry]) -> list[Entry]:
    """DeepSpeed entries less the loss-scale keys of an fp16 section that is off: they say nothing then."""
    off = any(entry.key == "fp16.enabled" and entry.value is False for entry in entries)
    return [entry for entry in entries if not (off and entry.key.startswith("fp16.") and entry.key != "fp16.enabled")]
