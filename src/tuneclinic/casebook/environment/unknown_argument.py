"""An argument that nobody knows: renamed, removed, misspelt, or of another framework."""

from __future__ import annotations

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import end, ended_with, other_end, trained
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.words import Text

RENAMED: dict[str, Text] = {
    "evaluation_strategy": Text("renamed eval_strategy (old name gone from transformers 4.51 on)", "改名为 eval_strategy（transformers 4.51 起旧名已删）"),
    "eval_strategy": Text("new in transformers 4.41; older releases call it evaluation_strategy", "transformers 4.41 才有；更早叫 evaluation_strategy"),
    "tokenizer": Text("renamed processing_class (TRL 0.16, Trainer of transformers 5)", "改名为 processing_class（TRL 0.16、transformers 5 的 Trainer）"),
    "processing_class": Text("new in transformers 4.46; older trainers call it tokenizer", "transformers 4.46 才有；更早叫 tokenizer"),
    "max_seq_length": Text("renamed max_length in SFTConfig (old name gone from TRL 0.20 on)", "在 SFTConfig 里改名为 max_length（TRL 0.20 起旧名已删）"),
    "dataset_text_field": Text("moved from SFTTrainer to SFTConfig", "从 SFTTrainer 挪到了 SFTConfig"),
    "packing": Text("moved from SFTTrainer to SFTConfig", "从 SFTTrainer 挪到了 SFTConfig"),
    "num_items_in_batch": Text("passed by transformers 4.46 and later: take it in your compute_loss(…, num_items_in_batch=None)", "transformers 4.46 起会传进来：自定义 compute_loss 要加 num_items_in_batch=None"),
    "no_cuda": Text("renamed use_cpu", "改名为 use_cpu"),
    "overwrite_output_dir": Text("removed in transformers 5", "transformers 5 已删除"),
    "load_in_4bit": Text("pass quantization_config=BitsAndBytesConfig(load_in_4bit=True)", "改传 quantization_config=BitsAndBytesConfig(load_in_4bit=True)"),
    "load_in_8bit": Text("pass quantization_config=BitsAndBytesConfig(load_in_8bit=True)", "改传 quantization_config=BitsAndBytesConfig(load_in_8bit=True)"),
    "use_auth_token": Text("renamed token", "改名为 token"),
    "keep_torch_compile": Text("known to accelerate 1.3 and later: upgrade accelerate", "accelerate 1.3 起才有：升级 accelerate"),
    "dispatch_batches": Text("moved into accelerator_config", "挪进了 accelerator_config"),
    "ref_model": Text("for DPO with an adapter leave it out", "带 adapter 的 DPO 不要传"),
    "beta": Text("moved from DPOTrainer to DPOConfig", "从 DPOTrainer 挪到了 DPOConfig"),
}  # fmt: skip
"""Arguments whose new name or place is known (migration guides and release notes of transformers, TRL and accelerate)."""
NAMES = pattern(
    r"unexpected keyword argument '(\w+)'|not used by the hfargumentparser: \[([^\]]{1,400})\]|unrecognized arguments: (.{1,300})",
    re.IGNORECASE,
)
PARSERS = (r"^.{0,120}error: (unrecognized arguments|argument .{1,80}: invalid choice)", r"^error: no such option")
"""How argparse and click end a program."""
EXTRA = (r"extra inputs are not permitted|extra fields not permitted|type=extra_forbidden|unexpected_keyword_argument",)
WORD = pattern(r"[A-Za-z_]\w{1,60}")


class UnknownArgument(Case):
    id = "unknown-argument"
    symptoms = {"crashes": 0.05}
    stage = "environment"
    needs = ("crash", "log")
    probe = "environment"
    signatures = (
        r"some (keys|specified arguments) are not used by the hfargumentparser",
        r"got an unexpected keyword argument",
        r"(error: )?unrecognized (arguments|options?)",
        r"extra inputs are not permitted|extra fields not permitted|type=extra_forbidden",
        r"unexpected_keyword_argument",
        r"key '[^']{1,80}' (is )?not in (struct|'\w+')",
        r"configattributeerror|configkeyerror",
        r"could not override '",
        r"no such option:",
        r"no action for (destination )?key|key \S{1,80} is not expected",
        r"unknown command line flag",
        r"could not consume arg",
        r"invalid choice: ",
    )
    search = (
        "ValueError: Some keys are not used by the HfArgumentParser",
        "TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "SFTTrainer.__init__() got an unexpected keyword argument 'max_seq_length'",
        "error: unrecognized arguments",
        "Extra inputs are not permitted",
        "参数名改了 报 unexpected keyword argument",
        "HfArgumentParser 有没用到的 key",
        "参数不认识 unrecognized arguments",
        "升级 trl 之后参数报错",
    )

    en = Card(
        title="This version does not know an argument",
        sign="The run stops before the first step: got an unexpected keyword argument, Some keys are not used by the HfArgumentParser, unrecognized arguments, Extra inputs are not permitted, Key is not in struct.",
        cause="The configuration was written for another version than the one installed: the argument was renamed, moved from the trainer to its config class, added later or removed. Or it is misspelt, or belongs to another framework.",
        remedy='Look up the quoted name in the installed version, not in a tutorial: python -c "import trl, inspect; print(inspect.signature(trl.SFTConfig))", or llamafactory-cli train -h | grep NAME. Frequent cases: evaluation_strategy → eval_strategy, tokenizer= → processing_class=, SFTTrainer(max_seq_length=) → SFTConfig(max_length=), group_by_length → train_sampling_strategy="group_by_length" (transformers 5), a compute_loss without num_items_in_batch=None. Or install the version that the script was written for.',
        verify="Parsing passes, and the printed arguments show your value instead of the default.",
        prevention="Pin the training packages in a requirements file next to the configuration, and run ten steps after every upgrade.",
        question="Which name does the message quote, and which version of that library is installed (pip show)?",
        quiz="After a TRL upgrade: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'. What now? Pass processing_class=tokenizer; the tokenizer itself is fine.",
    )
    zh = Card(
        title="当前版本不认识某个参数",
        sign="还没到第一步就停了：got an unexpected keyword argument、Some keys are not used by the HfArgumentParser、unrecognized arguments、Extra inputs are not permitted、Key is not in struct。",
        cause="配置是按另一个版本写的：参数改名了、从 Trainer 挪到了 Config 类、是后来才加的，或者已经删了；也可能是拼错，或者写了别的框架的参数。",
        remedy='拿报错里的名字去查实际装的版本，别查教程：python -c "import trl, inspect; print(inspect.signature(trl.SFTConfig))"，或 llamafactory-cli train -h | grep 名字。常见的：evaluation_strategy → eval_strategy，tokenizer= → processing_class=，SFTTrainer(max_seq_length=) → SFTConfig(max_length=)，group_by_length → train_sampling_strategy="group_by_length"（transformers 5），自定义 compute_loss 缺 num_items_in_batch=None。或者装回脚本当时的版本。',
        verify="参数解析能过，打印出来的参数是你设的值，不是默认值。",
        prevention="用 requirements 文件把训练环境的版本和配置固定在一起；每次升级后先跑十步。",
        question="报错里引号中的名字是什么？对应的库装的是哪个版本（pip show）？",
        quiz="升级 TRL 后报 SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'，怎么办？改成 processing_class=tokenizer，tokenizer 本身没有问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("ValueError", "Some keys are not used by the HfArgumentParser: ['lora_rnak']")),
            Evidence(
                crash=make.crashed(
                    "TypeError", "TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'"
                )
            ),
            Evidence(
                log=make.logged("usage: train.py [-h] [--lora_r N]", "train.py: error: unrecognized arguments: --lora-rank 16")
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("TypeError", "forward() missing 1 required positional argument: 'input_ids'")),
            Evidence(crash=make.crashed("KeyError", "'text'", phase="data")),
            Evidence(metrics=make.ran(loss=make.falling()), crash=make.crashed("RuntimeError", "CUDA error: device-side assert")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = ended_with(seen, self.signatures, PROOF)
        error = end(seen)
        if not proof and error is not None and "validationerror" in error.kind.lower():
            proof = lines(seen, *EXTRA, weight=PROOF)  # pydantic says what is wrong on lines of its own
        if not proof and error is None and not trained(seen):
            proof = lines(seen, *PARSERS, weight=PROOF)  # a parser prints its error without a traceback
        if proof:
            return self.confirmed(*proof, *_renamed(seen))
        against = other_end(seen)
        if against:
            return self.ruled_out(*against)
        ran = trained(seen)
        return self.ruled_out(*ran) if ran and seen.crash is not None else self.not_checked("crash")


def _renamed(seen: Evidence) -> tuple[Exhibit, ...]:
    """What became of the arguments that the error quotes, where it is known."""
    error = end(seen)
    match = NAMES.search(error.quote[:2000]) if error is not None else None
    if match is None:
        return ()
    quoted = WORD.findall(" ".join(group for group in match.groups() if group))
    return tuple(
        say(f"{name}: {RENAMED[name].en}", f"{name}：{RENAMED[name].zh}", section="crash")
        for name in dict.fromkeys(quoted)
        if name in RENAMED
    )
