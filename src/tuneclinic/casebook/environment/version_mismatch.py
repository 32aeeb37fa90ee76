"""Versions that do not work together, or one that is known to be bad."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import end, ended_with, other_end, shows, trained
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment
from tuneclinic.signature import first_line
from tuneclinic.versions import KnownFault, agrees, fitting, installed, known

STACK = (
    r"(torch|torchvision|torchaudio|torchao|transformers|tokenizers|peft|trl|accelerate|deepspeed|datasets|bitsandbytes|flash_attn\w*|flash_attention\w*|xformers|triton|vllm|unsloth\w*|numpy|safetensors|"
    r"huggingface_hub|liger_kernel|axolotl|llamafactory|swift|auto_gptq|awq|optimum|apex|sentencepiece|protobuf|google\.protobuf|pydantic|ray|megatron|transformer_engine|lightning|pytorch_lightning|"
    r"qwen_vl_utils|timm|einops|causal_conv1d|mamba_ssm|fla)"
)
"""Packages of a training stack, by their import names. A module that is none of these is the user's own."""
SHORT = 12
"""Characters of a known error below which it names nothing by itself."""
ENOUGH = 3
"""Packages with known versions from which a clean comparison with the table says something."""
CORE = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "deepspeed",
    "numpy",
    "tokenizers",
    "datasets",
    "liger-kernel",
    "bitsandbytes",
    "flash-attn",
    "torchvision",
)
SHOWN = 3
"""Entries shown at most."""


class VersionMismatch(Case):
    id = "version-mismatch"
    symptoms = {"crashes": 0.08}
    stage = "environment"
    needs = ("environment", "crash", "log")
    probe = "environment"
    explains = ("unknown-argument", "accumulation-misnormalised", "attention-kernel-fault", "broken-kernel")
    signatures = (
        rf"no module named ['\"]?{STACK}(\.[\w.]+)?(['\";\s]|$)",
        rf"cannot import name '?\w+'? from (partially initialized module )?'?{STACK}\b",
        rf"module '{STACK}(\.[\w.]+)?' has no attribute",
        r"undefined symbol: ?\w",
        r"is required for a normal functioning of this module",
        r"which is incompatible",
        r"found an incompatible version of",
        r"weights only load failed",
        r"due to a serious vulnerability issue in .{0,3}torch\.load",
        r"transformers does not recognize this architecture",
        r"compiled using numpy 1\.x|numpy\.dtype size changed|numpy\.core\.multiarray failed to import",
        r"descriptors cannot not be created directly|descriptors cannot be created directly",
        r"operator torchvision::nms does not exist",
        r"pytorch and torchvision (were|have) .{0,40}different cuda",
        r"flash attention.{0,80}(is not available|not installed|package .{0,30}seems to be not installed)",
        r"flash_?attention_?2 has been toggled on, but it cannot be used",
        r"glibc(xx)?_[\d.]+'? not found",
        r"(versionconflict|distributionnotfound|packagenotfounderror)",
        r"using .{1,80} requires .{0,30}(accelerate|bitsandbytes|peft|optimum|auto-gptq|autoawq|flash)",
        r"requires the latest version of (bitsandbytes|accelerate)",
        r"flashattention only supports ampere gpus or newer",
        r"dataset scripts are no longer supported",
    )
    search = (
        "ImportError: cannot import name",
        "undefined symbol flash_attn_2_cuda",
        "is required for a normal functioning of this module but found",
        "Weights only load failed torch 2.6",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "torch transformers 版本不兼容",
        "库版本冲突 导入报错",
        "升级 transformers 之后训练报错",
        "undefined symbol 版本不匹配",
        "哪个版本的 transformers 有 bug",
    )

    en = Card(
        title="Package versions do not fit together",
        sign="An import fails (cannot import name, undefined symbol, No module named, is required for a normal functioning), a function is gone after an upgrade, or the same script gives wrong numbers on another machine.",
        cause="Training libraries depend on each other: transformers restricts the versions of huggingface_hub and tokenizers, compiled wheels (flash-attn, bitsandbytes, torchvision, xformers) fit one torch build, and some releases compute wrongly. One pip install changed one of them.",
        remedy='Run pip list | grep -iE "torch|transformers|peft|trl|accelerate|deepspeed|flash|numpy", then pip check. If the evidence names versions, install them together in one command, so that pip resolves them at once. After a change of torch rebuild what is compiled: pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir flash-attn.',
        verify='python -c "import torch, transformers, peft, trl" prints no error, pip check finds nothing, and ten steps give the same loss as on the machine where it worked.',
        prevention="Freeze the working environment (pip freeze > requirements.lock) with the run, and upgrade one package at a time with a ten-step comparison.",
        question="What does pip list show for torch, transformers, peft, trl and accelerate, and what was installed last?",
        quiz="flash_attn_2_cuda…so: undefined symbol: _ZN3c10… after an upgrade of torch. Reinstall which one? flash-attn: its binary was built against the older torch.",
    )
    zh = Card(
        title="包版本不匹配或有已知问题",
        sign="导入就报错（cannot import name、undefined symbol、No module named、is required for a normal functioning），升级后某个函数没了，或者同一个脚本换台机器数值就不对。",
        cause="训练库互相依赖：transformers 限定 huggingface_hub 和 tokenizers 的版本，编译过的包（flash-attn、bitsandbytes、torchvision、xformers）只对应一个 torch 版本，还有些版本本身就算错。某次 pip install 动了其中一个。",
        remedy='先 pip list | grep -iE "torch|transformers|peft|trl|accelerate|deepspeed|flash|numpy"，再 pip check。证据里点名了版本的，用一条命令一起装，让 pip 一次解完依赖。换了 torch 就要重装编译过的包：pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir flash-attn。',
        verify='python -c "import torch, transformers, peft, trl" 不报错，pip check 没问题，跑十步 loss 和原来正常的机器一致。',
        prevention="环境跑通后立刻冻结（pip freeze > requirements.lock），和训练放在一起；一次只升一个包，升完跑十步对比。",
        question="pip list 里 torch、transformers、peft、trl、accelerate 各是什么版本？最近装过什么？",
        quiz="升级 torch 后报 flash_attn_2_cuda…so: undefined symbol: _ZN3c10…，该重装谁？flash-attn，它的二进制是按旧 torch 编译的。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("ModuleNotFoundError", "No module named 'flash_attn.cute.block_sparsity'")),
            Evidence(
                crash=make.crashed(
                    "ImportError",
                    "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
                ),
                environment=Environment(packages={"torch": "2.7.0+cu126", "flash-attn": "2.7.4.post1"}),
            ),
            Evidence(
                environment=Environment(packages={"liger-kernel": "0.3.1", "transformers": "4.46.3", "torch": "2.5.1"}),
                metrics=make.ran(loss=make.blows_up()),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("ModuleNotFoundError", "No module named 'my_utils'")),  # the user's own module
            Evidence(  # the pair next to a bad one, and nothing odd
                environment=Environment(
                    packages={"liger-kernel": "0.5.2", "transformers": "4.48.3", "torch": "2.5.1", "peft": "0.14.0"}
                ),
                metrics=make.ran(loss=make.falling()),
            ),
            Evidence(  # a bad pair whose harm does not show
                environment=Environment(packages={"liger-kernel": "0.3.1", "transformers": "4.46.3", "torch": "2.5.1"}),
                metrics=make.ran(loss=make.falling()),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = ended_with(seen, self.signatures, PROOF)
        entries = tuple(_judged(seen))
        proofs = [_told(seen, entry, PROOF) for entry, proof, _ in entries if proof]
        if named or proofs:
            return self.confirmed(*named, *proofs[:SHOWN])
        leaning = [_told(seen, entry, weight) for entry, _, weight in entries]
        if leaning:
            return self.suspected(*leaning[:SHOWN], missing=("crash",))
        against = (*other_end(seen), *_compared(seen))
        ran = trained(seen, -2.0)
        if end(seen) is not None and against:
            return self.ruled_out(*against)
        if _compared(seen) and ran:
            return self.ruled_out(*against, *ran)
        return self.not_checked("environment", "crash", exhibits=against)


def _judged(seen: Evidence) -> Iterator[tuple[KnownFault, bool, float]]:
    """Entries that fit this environment and are not contradicted: the entry, whether it is proven, and its weight."""
    if seen.environment is None or not installed(seen.environment):
        return
    for entry in fitting(seen.environment):
        shown = shows(seen, entry.symptom)
        if shown is False:
            continue
        if entry.error and len(entry.error) >= SHORT and _raised(seen, entry):
            if entry.symptom == "crashes" or not entry.when or _bounded(entry):
                yield entry, True, PROOF
        elif entry.symptom == "crashes" or entry.error:
            continue  # a crash is named by its words, not by versions
        elif not entry.when and shown:
            yield entry, not entry.weak, 4.0
        elif agrees(entry, seen.settings) and shown:
            yield entry, False, 3.0


def _bounded(entry: KnownFault) -> bool:
    """Whether a later release mended it. Where none did, a warning tells of the call in `when`, not of the version."""
    return any("<" in specifier or "==" in specifier for specifier in entry.packages.values())


def _raised(seen: Evidence, entry: KnownFault) -> bool:
    """Whether the entry's message is in the error that ended the run; for a fault that is no crash, in any line of the log."""
    pattern = re.escape(entry.error.lower())
    if ended_with(seen, (pattern,), 0.0):
        return True
    return entry.symptom != "crashes" and seen.log is not None and first_line(seen.log, pattern) is not None


def _told(seen: Evidence, entry: KnownFault, weight: float) -> Exhibit:
    """The versions, what is known of them and the way out."""
    held = installed(seen.environment) if seen.environment is not None else {}
    pair = ", ".join(f"{name} {held.get(name, '')}".strip() for name in entry.packages)
    where = ""
    if seen.environment is not None:
        where = next((seen.environment.places[name] for name in entry.packages if name in seen.environment.places), "")
    return say(
        f"{pair}: {entry.what} Fix: {entry.fix} ({entry.source})",
        f"{pair} 是已知有问题的版本（{entry.source}）。解决办法：{entry.fix}",
        weight,
        section="environment",
        where=where,
    )


def _compared(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that enough versions were compared with the table and none of its entries applies."""
    held = seen.environment.packages if seen.environment is not None else {}
    core = [f"{name} {held[name]}" for name in CORE if name in held]
    if len(core) < ENOUGH:
        return ()
    return (
        say(
            f"{', '.join(core)}: none of {len(known())} known faults applies",
            f"{'，'.join(core)}：{len(known())} 条已知版本问题都不符合",
            -3.0,
            section="environment",
        ),
    )
