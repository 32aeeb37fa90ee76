"""Settings in Python scripts, xtuner configurations and notebooks."""

import json

UNSLOTH = """\
from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
max_seq_length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="team/Llama-3.1-8B", max_seq_length=max_seq_length, dtype=None, load_in_4bit=True,
)
model = FastLanguageModel.get_peft_model(
    model, r=16, target_modules=["q_proj", "k_proj"], lora_alpha=32, use_gradient_checkpointing="unsloth",
)
trainer = SFTTrainer(
    model=model,
    packing=False,
    args=SFTConfig(
        per_device_train_batch_size=2,
        learning_rate=2e-4,
        fp16=not torch.cuda.is_bf16_supported(),
        output_dir="outputs",
    ),
)
"""


def test_unsloth_script(read):
    settings = read(UNSLOTH, "train.py").evidence.settings
    assert settings.framework == "unsloth"
    assert settings.get("method") == "qlora"
    assert settings.get("stage") == "sft"
    assert settings.get("lora_rank") == 16
    assert settings.get("max_length") == 2048
    assert settings.get("gradient_checkpointing") is True
    assert settings.get("target_modules") == ("q_proj", "k_proj")
    assert "fp16" not in settings  # only running it tells
    assert settings.values["learning_rate"].where == "train.py:15"
    assert settings.values["learning_rate"].quote == "learning_rate=2e-4"
    assert settings.values["max_length"].quote.endswith("# 2048")


LOOP = """\
import argparse, torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup
BATCH_SIZE = 8
EPOCHS = 3
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=5e-5)
parser.add_argument("--max-length", type=int, default=512)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16).cuda()
train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=False)
val_loader = DataLoader(val_set, batch_size=16)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=EPOCHS * 1000)
scaler = torch.cuda.amp.GradScaler()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""


def test_plain_loop(read):
    settings = read(LOOP, "loop.py").evidence.settings
    found = {name: setting.value for name, setting in settings.values.items()}
    assert settings.framework == "pytorch"
    assert found["learning_rate"] == 5e-5
    assert found["batch_per_device"] == 8
    assert found["eval_batch_per_device"] == 16
    assert found["shuffle"] is False
    assert found["optimizer"] == "AdamW"
    assert found["adam_beta2"] == 0.95
    assert found["max_steps"] == 3000
    assert found["max_grad_norm"] == 1.0
    assert found["dtype"] == "float16"
    assert found["fp16"] is True
    assert found["method"] == "full"
    assert found["max_length"] == 512
    assert settings.values["max_length"].default is True
    assert settings.values["learning_rate"].default is False


def test_a_command_line_overrides_a_scripts_default_without_a_conflict(read):
    shell = read("#!/bin/sh\npython loop.py --lr 1e-3 --max-length 64 --num_train_epochs 1\n", "run.sh").evidence.settings
    both = shell.merge(read(LOOP, "loop.py").evidence.settings)
    assert both.get("max_length") == 64
    assert "max_length" not in both.conflicts
    assert both.conflicts["learning_rate"][0].where == "loop.py:13"


def test_a_script_that_freezes_is_not_called_full(read):
    settings = read(LOOP + "for p in model.parameters():\n    p.requires_grad = False\n", "loop.py").evidence.settings
    assert "method" not in settings


def test_trl_with_dictionaries_of_arguments(values):
    text = """\
from trl import DPOTrainer, DPOConfig
from peft import LoraConfig
import torch
from transformers import BitsAndBytesConfig, AutoModelForCausalLM
config = {"learning_rate": 5e-7, "num_train_epochs": 1, "beta": 0.1}
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("a/b", quantization_config=bnb, attn_implementation="flash_attention_2")
peft_config = LoraConfig(r=8, lora_alpha=16, modules_to_save=["lm_head"])
training_args = DPOConfig(**config, bf16=True)
training_args.gradient_checkpointing = True
DPOTrainer(model, args=training_args)
"""
    found = values(text, "dpo.py")
    assert (found["stage"], found["method"], found["framework"]) == ("dpo", "qlora", "trl")
    assert (found["learning_rate"], found["beta"], found["bf16"]) == (5e-7, 0.1, True)
    assert found["compute_dtype"] == "bfloat16"
    assert found["attention"] == "flash_attention_2"
    assert found["gradient_checkpointing"] is True
    assert found["modules_to_save"] == ("lm_head",)


def test_lightning(values):
    text = (
        "import lightning as L\nimport torch\nopt = torch.optim.Adam(p, lr=3e-4)\n"
        'trainer = L.Trainer(max_epochs=10, accelerator="gpu", devices=4, precision="bf16-true", gradient_clip_val=1.0)\n'
    )
    found = values(text, "lit.py")
    assert found["framework"] == "lightning"
    assert (found["epochs"], found["processes"], found["max_grad_norm"]) == (10, 4, 1.0)
    assert (found["bf16"], found["pure_bf16"], found["dtype"]) == (True, True, "bfloat16")


XTUNER = """\
import torch
from mmengine.optim import AmpOptimWrapper, CosineAnnealingLR, LinearLR
from peft import LoraConfig
from torch.optim import AdamW
from xtuner.model import SupervisedFinetune
path = "team/base-7b"
batch_size = 1
accumulative_counts = 16
optim_type = AdamW
lr = 2e-4
model = dict(
    type=SupervisedFinetune,
    llm=dict(pretrained_model_name_or_path=path, torch_dtype=torch.float16, quantization_config=dict(load_in_4bit=True)),
    lora=dict(type=LoraConfig, r=64, lora_alpha=16),
)
train_dataloader = dict(batch_size=batch_size, sampler=dict(shuffle=True))
optim_wrapper = dict(
    type=AmpOptimWrapper,
    optimizer=dict(type=optim_type, lr=lr, betas=(0.9, 0.999)),
    clip_grad=dict(max_norm=1),
    accumulative_counts=accumulative_counts,
    dtype="float16",
)
param_scheduler = [dict(type=LinearLR, end=0.03), dict(type=CosineAnnealingLR, eta_min=0.0)]
"""


def test_xtuner_configuration(values):
    found = values(XTUNER, "qlora.py")
    assert found["framework"] == "xtuner"
    assert found["method"] == "qlora"
    assert found["model"] == "team/base-7b"
    assert (found["learning_rate"], found["accumulation"], found["batch_per_device"]) == (2e-4, 16, 1)
    assert (found["lora_rank"], found["max_grad_norm"], found["fp16"]) == (64, 1, True)
    assert (found["optimizer"], found["scheduler"]) == ("AdamW", "cosine")


def test_notebook_cells_are_cited_by_cell_and_line(read):
    cells = [
        {"cell_type": "markdown", "source": "# learning_rate=9"},
        {"cell_type": "code", "source": "%%bash\npip install trl"},
        {"cell_type": "code", "source": ["!pip install trl\n", "from trl import SFTConfig\n", "seed = 1\n"]},
        {"cell_type": "code", "source": "this is no python"},
        {"cell_type": "code", "source": "args = SFTConfig(\n    learning_rate=1e-4,\n    packing=True,\n)"},
    ]
    settings = read(json.dumps({"cells": cells, "nbformat": 4}), "run.ipynb").evidence.settings
    assert settings.get("learning_rate") == 1e-4
    assert settings.values["learning_rate"].where == "run.ipynb cell 4:2"
    assert settings.get("packing") is True


def test_a_script_that_was_cut_off_is_read_up_to_the_cut(read):
    reading = read(UNSLOTH[: UNSLOTH.index("output_dir")], "train.py")
    assert reading.evidence.settings.get("lora_rank") == 16
    assert "line" in reading.note.en


def test_nothing_is_executed(read, tmp_path):
    witness = tmp_path / "witness"
    text = f"import torch\nopen({str(witness)!r}, 'w').write('x')\nlearning_rate = 1e-4\nseed = __import__('os').system('true')\n"
    settings = read(text, "evil.py").evidence.settings
    assert settings.get("learning_rate") == 1e-4
    assert not witness.exists()


def test_sources_that_break_parsers_are_answered(read):
    for text in (
        "import torch\nx = " + "(" * 100_000,
        "import torch\nx = " + "-" * 4000 + "1",
        "import torch\nx = " + "+".join(["1"] * 100_000),
        "import torch\nx = " + "\\\n".join(["a.b+"] * 30_000) + "1",
        "import torch\0\nlearning_rate = 1\0e-4\n" + "# words\n" * 20,
        "import torch\nlearning_rate = 2 ** 2 ** 2 ** 99999\n",
        "import torch\nlr = (-8) ** 0.5\n",
        "import torch\nlr = 1 / 0\nseed = " + "9" * 5000 + "\n",
        "import torch\n" + "\n".join(f"a{i + 1} = a{i} * a{i}" for i in range(60)) + "\nlearning_rate = a60\n",
        "import torch\nlr = lr\nlearning_rate = lr\n",
        "import torch\nif x:\n" + "\n".join(" " * i + "if x:" for i in range(1, 150)),
        "print 'python 2'\nimport torch\n",
    ):
        reading = read(text, "hostile.py")
        assert reading.understood or reading.note


def test_a_script_that_only_generates_says_nothing_of_the_training(read):
    text = """\
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("out/merged", torch_dtype=torch.float16, load_in_4bit=True)
model.generate(ids, max_new_tokens=256, temperature=0.1)
"""
    reading = read(text, "infer.py")
    settings = reading.evidence.settings
    assert "dtype" not in settings
    assert "quantization_bits" not in settings
    assert settings.get("temperature") == 0.1
    assert settings.get("model") == "out/merged"
    assert reading.skipped["settings of a script that does not train"] == 2


def test_a_list_of_constants_is_a_configuration(values):
    found = values("import torch\nclass CFG:\n    lr = 1e-3\n    batch_size = 4\n    rank = 0\nMAX_LEN = 128\n", "config.py")
    assert (found["learning_rate"], found["batch_per_device"], found["max_length"]) == (1e-3, 4, 128)
