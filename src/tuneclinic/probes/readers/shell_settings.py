"""Launch scripts: the flags of the training command, what launches it, and the environment variables that change a run."""

from __future__ import annotations

import re
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.probes.frameworks import framework_of
from tuneclinic.probes.readers._settings import Entry, named, reading_of, settings_of, stand_in
from tuneclinic.probes.readers._shell_words import SCRIPT_BYTES, Command, Word, commands
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.values import dataclass

PROGRAMS = {
    "llamafactory-cli": ("llama-factory", {"train"}),
    "lmf": ("llama-factory", {"train"}),
    "swift": ("ms-swift", {"sft", "pt", "rlhf"}),
    "megatron": ("ms-swift", {"sft", "pt", "rlhf"}),
    "axolotl": ("axolotl", {"train"}),
    "tune": ("torchtune", {"run"}),
    "xtuner": ("xtuner", {"train"}),
    "trl": ("trl", {"sft", "dpo", "kto", "grpo", "reward", "rloo"}),
}
"""Command-line programs, their framework and the subcommands that train."""
SCRIPTS = {
    "train_bash.py": "llama-factory",
    "qlora.py": "transformers",
    "pretrain_gpt.py": "megatron",
    "sft.py": "",
    "cli/sft.py": "ms-swift",
    "llm_sft.py": "ms-swift",
    "axolotl.cli.train": "axolotl",
    "scripts/finetune.py": "axolotl",
}
LAUNCH_KEYS = {
    "nproc_per_node": "nproc_per_node",
    "nproc-per-node": "nproc_per_node",
    "num_processes": "num_processes",
    "num-processes": "num_processes",
    "num_gpus": "num_gpus",
    "nnodes": "nnodes",
    "num_machines": "num_machines",
    "mixed_precision": "mixed_precision",
    "mixed-precision": "mixed_precision",
    "zero_stage": "zero_stage",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "config_file": "accelerate_config_file",
    "include": "include",
}
"""Flags of launchers that are settings; all others only say where the machines are."""
ENVIRONMENT = pattern(
    r"(?:MAX_PIXELS|MIN_PIXELS|NPROC_PER_NODE|NNODES|\w*VISIBLE_DEVICES|PYTORCH_\w*ALLOC_CONF|NCCL_\w+|VIDEO_\w+|FPS\w*|"
    r"IMAGE_\w+|CUDA_\w+|TORCH_\w+|ACCELERATE_\w+|OMP_NUM_THREADS|TOKENIZERS_PARALLELISM|HF_HUB_OFFLINE|FORCE_TORCHRUN|"
    r"DISABLE_VERSION_CHECK|SEQ_LEN|SIZE_FACTOR|MAX_NUM|USE_\w+|DS_\w+|CUDA)"
)
"""Environment variables that change how a run behaves. Others (names of projects, keys) are left alone."""
LAUNCHERS = frozenset({"accelerate", "torchrun", "deepspeed", "torch.distributed.launch", "torch.distributed.run"})
NOT_TRAINING = pattern(r"eval|infer|test|predict|generat|serve|bench|merge|convert|preprocess|tokeniz", re.IGNORECASE)
FEWEST = 2
"""Settings that a command of no known program must carry to be a training command."""
TRAINING = frozenset(
    {
        "learning_rate",
        "epochs",
        "max_steps",
        "batch_per_device",
        "global_batch",
        "accumulation",
        "optimizer",
        "scheduler",
        "method",
        "stage",
        "lora_rank",
        "deepspeed",
        "gradient_checkpointing",
        "save_steps",
    }
)
"""Settings that only a training command has; `--max_new_tokens --load_in_8bit` generates."""
_SIGN = pattern(
    rb"llamafactory-cli\s+train|\bswift\s+(?:sft|pt|rlhf)\b|--(?:learning[_-]rate|lr|num_train_epochs|micro-batch-size|"
    rb"per_device_train_batch_size|train_type|finetuning_type|sft_type|lora_r(?:ank)?|deepspeed|model_name_or_path|"
    rb"bf16|output_dir)\b|axolotl\s+train|\btune\s+run\b|xtuner\s+train"
)


@dataclass(slots=True)
class _Launch:
    """A training command taken apart."""

    framework: str = ""
    entries: list[Entry] = field(default_factory=list)
    known: int = 0


class ShellSettings(Reader):
    """Shell scripts that start a training run, and single command lines saved as text."""

    kind = "launch script"
    precedence = 20

    def claims(self, file: SourceFile) -> float:
        """Shell scripts, by name or first line, whose head holds a training command."""
        shell = file.base.endswith((".sh", ".bash", ".slurm", ".sbatch", ".ksh", ".zsh", ".cmd", ".bat")) or bool(
            re.match(rb"#!\s*/\S*\b(?:ba|z|k|da)?sh\b", file.head) or re.match(rb"#!\s*/usr/bin/env (?:ba|z|k)?sh", file.head)
        )
        launch = file.base in {"command.txt", "cmd.txt", "run.txt", "launch.txt"}
        if not (shell or launch) or file.binary:
            return 0.0
        return 0.6 if _SIGN.search(file.head) else (0.3 if shell else 0.0)

    def read(self, file: SourceFile) -> list[Reading]:
        """The settings of the first training command; further ones are counted, not mixed in."""
        try:
            text = file.text(SCRIPT_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        pointer = stand_in(text)
        if pointer:
            return [Reading(note=pointer)]
        launches = []
        exported: dict[str, Word] = {}
        for command, variables in commands(text):
            launch = _launch(command, file.name)
            if launch is not None:
                launches.append(launch)
                if len(launches) == 1:
                    exported = {**variables, **command.environment}
        if not launches:
            return [reading_of(settings_of((), "", file.name))]
        entries = [*launches[0].entries, *_environment(exported, file.name)]
        settings = settings_of(entries, launches[0].framework, file.name)
        further = {"further training commands": len(launches) - 1} if len(launches) > 1 else {}
        return [reading_of(settings, skipped=further)]


def _environment(variables: dict[str, Word], file: str) -> list[Entry]:
    return [
        Entry(name, word.text, f"{file}:{word.line}", word.raw, rank=4)
        for name, word in variables.items()
        if ENVIRONMENT.fullmatch(name) and not word.open and word.text
    ]


def _launch(command: Command, file: str) -> _Launch | None:
    """A command as a launch, None where it trains nothing that can be told."""
    words = command.words
    start, framework, program = _program(words)
    if start is None:
        return None
    launch = _Launch(framework)
    launch.entries = _launcher_flags(words[: max(start - 1, 0)], file)
    own = _flags(words[start:], file, framework)
    launch.framework = framework or framework_of(entry.key for entry in own)
    names = {named(entry.key, launch.framework) for entry in own} - {None}
    launch.known = len(names) if names & TRAINING else 0
    launch.entries = [*own, *launch.entries]
    if not program and launch.known < FEWEST and not _launched(words[:start], launch.entries):
        return None
    launch.entries.extend(_stage(words[start:], program, file))
    return launch


def _launched(words: list[Word], entries: list[Entry]) -> bool:
    """Whether a launcher of several processes starts a script that says by its name nothing but training."""
    launcher = any(word.text.rsplit("/", 1)[-1] in LAUNCHERS for word in words[:4])
    counted = any(entry.key in {"num_processes", "nproc_per_node", "num_gpus"} for entry in entries)
    return launcher and counted and bool(words) and NOT_TRAINING.search(words[-1].text) is None


def _program(words: list[Word]) -> tuple[int | None, str, str]:
    """Where the arguments of the training program begin, its framework, and its name where it is a known program."""
    for index, word in enumerate(words[:60]):
        base = word.text.rsplit("/", 1)[-1]
        following = words[index + 1].text if index + 1 < len(words) else ""
        if base in PROGRAMS and not word.text.endswith(".py"):
            framework, trains = PROGRAMS[base]
            return (index + 1, framework, base) if following in trains else (None, "", "")
        if word.text.endswith(".py") or (word.text == "-m" and index and "python" in words[index - 1].text):
            module = following if word.text == "-m" else word.text
            if module in {"torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch", "deepspeed"}:
                continue
            known = next((name for end, name in SCRIPTS.items() if module.endswith(end)), "")
            return index + 1, known, ""
    if words and words[0].text.startswith("--"):
        return 0, "", ""
    return None, "", ""


def _stage(words: list[Word], program: str, file: str) -> list[Entry]:
    """`swift pt`, `trl dpo`: the subcommand as the stage."""
    if not program or not words:
        return []
    stage = {"pt": "pt", "sft": "sft", "dpo": "dpo", "kto": "kto", "grpo": "grpo", "reward": "reward"}.get(words[0].text)
    return [Entry("stage", stage, f"{file}:{words[0].line}", f"{program} {words[0].raw}", rank=3)] if stage else []


def _launcher_flags(words: list[Word], file: str) -> list[Entry]:
    entries = [entry for entry in _flags(words, file, "") if entry.key in LAUNCH_KEYS]
    return [Entry(LAUNCH_KEYS[entry.key], entry.value, entry.where, entry.written, rank=4) for entry in entries]


def _flags(words: list[Word], file: str, framework: str) -> list[Entry]:
    """Flags with their values, and the `key=value` overrides of LLaMA-Factory and torchtune."""
    entries: list[Entry] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text.startswith("--") and len(word.text) > 2:
            key, equals, value = word.text[2:].partition("=")
            raw = [word.raw]
            values = [value] if equals else []
            unknown = word.open and bool(equals)
            while not equals and index < len(words) and not _is_flag(words[index].text):
                if words[index].raw[0] in "<>":
                    break
                values.append(words[index].text)
                raw.append(words[index].raw)
                unknown = unknown or words[index].open
                index += 1
            if not unknown:
                result = True if not values else values[0] if len(values) == 1 else tuple(values)
                entries.append(Entry(key, result, f"{file}:{word.line}", " ".join(raw)))
        elif framework in {"llama-factory", "torchtune"} and re.match(r"[A-Za-z_][\w.]*=.", word.text) and not word.open:
            key, _, value = word.text.partition("=")
            entries.append(Entry(key, value, f"{file}:{word.line}", word.raw, rank=-1))
    return entries


def _is_flag(text: str) -> bool:
    return text.startswith("-") and not re.match(r"-\d|-$|-\.\d", text)
