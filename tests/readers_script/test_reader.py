import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers.script_facts import ScriptFactsReader
from tuneclinic.probes.reading import SourceFile
from tuneclinic.probes.scripts import script_of

SCRIPT = """import torch
from torch.utils.data import DataLoader, DistributedSampler
scaler = torch.amp.GradScaler()
model = DDP(AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float16))
for p in model.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters())
model = get_peft_model(model, LoraConfig(r=8))
train_loader = DataLoader(train, sampler=DistributedSampler(train))
history = []
for epoch in range(3):
    for step, batch in enumerate(train_loader):
        outputs = model(input_ids=batch["input_ids"], labels=batch["input_ids"][:, 1:])
        loss = outputs.loss / 4
        scaler.scale(loss).backward()
        history.append(loss)
        if (step + 1) % 4 == 0:
            scheduler.step()
            optimizer.step()
        if rank == 0:
            torch.save(model.state_dict(), "x")
            dist.barrier()
def evaluate(loader):
    for batch in loader:
        logits = model(batch)
        p = torch.log(torch.softmax(logits, -1))
def compute_metrics(p):
    return (p[0].argmax(-1) == p[1]).mean()
"""


def source(folder, name, text):
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    return SourceFile(folder / name, name)


def test_script(tmp_path):
    file = source(tmp_path, "train.py", SCRIPT)
    assert ScriptFactsReader.also
    assert ScriptFactsReader().claims(file) == 0.9
    (reading,) = ScriptFactsReader().read(file)
    found = {fact.name for fact in reading.evidence.script.facts}
    assert {
        "zero-grad-missing",
        "set-epoch-missing",
        "loss-kept-with-graph",
        "scheduler-before-optimizer",
        "scaler-misuse",
        "rank-zero-collective",
        "eval-without-eval-mode",
    } <= found
    assert reading.understood["facts"] == len(reading.evidence.script.facts)
    assert reading.evidence.script.sources == ("train.py",)


def test_notebook(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# torch"]},
        {"cell_type": "code", "source": ["%pip install torch\n", "import torch\n", "!nvidia-smi"]},
        {"cell_type": "code", "source": "%%bash\nls"},
        {"cell_type": "code", "source": "tokenizer.pad_token = tokenizer.eos_token"},
    ]
    file = source(tmp_path, "run.ipynb", json.dumps({"cells": cells}))
    assert ScriptFactsReader().claims(file) == 0.9
    (reading,) = ScriptFactsReader().read(file)
    (fact,) = reading.evidence.script.facts
    assert (fact.name, fact.quote) == ("pad-is-eos", "tokenizer.pad_token = tokenizer.eos_token")
    assert reading.note


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cells": 3}', '{"cells": [3, null, {"cell_type": "code", "source": [1, null]}]}', "[" * 100_000]
)
def test_broken_notebook(tmp_path, text):
    (reading,) = ScriptFactsReader().read(source(tmp_path, "x.ipynb", text))
    assert reading.understood == {}
    assert reading.note


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef f(:\n",
        "import torch\nprint 'x'\n",
        "import torch\n\x00",
        "import torch\n" + "(" * 3000,
        "import torch\nx = " + "1+" * 50_000 + "1",
    ],
)
def test_broken_script(tmp_path, text):
    (reading,) = ScriptFactsReader().read(source(tmp_path, "x.py", text))
    assert reading.note


def test_scripts_that_do_not_train_are_left_alone(tmp_path):
    assert ScriptFactsReader().claims(source(tmp_path, "x.py", "import json\n")) == 0
    assert ScriptFactsReader().claims(source(tmp_path, "x.txt", "import torch\n")) == 0


def test_deep_chains_end():
    script_of("import torch\nx = a" + ".b" * 3000 + "\ny = a" + "[0]" * 900 + "\nmodel" + "(x)" * 900 + ".backward()\n", "x.py")


def test_a_script_longer_than_any_is_not_half_read():
    assert script_of(SCRIPT + "\n".join(f"x{number} = y.z" for number in range(2000)), "x.py") is not None
    assert script_of(SCRIPT + "\n".join(f"x{number} = y.z" for number in range(20_000)), "x.py") is None


@pytest.mark.corpus
def test_real_configurations_and_scripts_show_no_fault(corpus):
    harmless = {"pad-is-eos", "seed-missing", "uses-torch-load", "response-template-collator"}
    for path in sorted(corpus.glob("configs/*.py")):
        file = SourceFile(path, path.name)
        if ScriptFactsReader().claims(file):
            (reading,) = ScriptFactsReader().read(file)
            facts = reading.evidence.script.facts if reading.evidence.script else ()
            assert {fact.name for fact in facts} <= harmless, path.name


LINES = SCRIPT.splitlines()
PIECES = st.sampled_from(
    ["model", "loss", ".backward()", "(", ")", "[:, 1:]", "= ", "\n", "    ", "for x in train_loader:\n", "if rank == 0:\n", ".step()", "optimizer", "**b", "*a", "lambda x: x", "labels=", ".eval()", "with torch.no_grad():\n", "return ", "@", "def evaluate(m):\n", "class GPT:\n", "-100", "f'{x}'", "await ", "yield ", ":=", "async for x in y:\n", "del x\n", "match x:\n", "    case 1: pass\n"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 25))
def test_lines_lost_doubled_and_moved(seed, changes):
    chance = random.Random(seed)
    lines = list(LINES)
    for _ in range(changes):
        at = chance.randrange(len(lines))
        choice = chance.randrange(4)
        if choice == 0 and len(lines) > 3:
            del lines[at]
        elif choice == 1:
            lines.insert(at, chance.choice(LINES))
        elif choice == 2:
            lines[at] = " " * chance.randrange(0, 12, 4) + lines[at].strip()
        else:
            words = lines[at].split(" ")
            words[chance.randrange(len(words))] = chance.choice(chance.choice(LINES).split(" "))
            lines[at] = " ".join(words)
    text = "\n".join(lines)
    script = script_of(text, "x.py")
    if script is not None:
        assert all(1 <= fact.line <= len(lines) for fact in script.facts)
        assert {fact.name for fact in script.facts} <= script.checked


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=40).map("".join))
def test_any_text(text):
    script_of(text, "x.py")


STATEMENTS = st.sampled_from(
    ["a.b[0].c = d", "x, *y = model(z)", "loss += 1", "total += loss", "del model", "model.train(False)", "(loss := model(x)).backward()", "optimizer = Adam()", "optimizer = AdamW(params=model.parameters())", "get_peft_model()", "model = get_peft_model()", "labels[0] = -1", "DataLoader(*a, **k)", "train_loader = DataLoader(d)",
     "F.cross_entropy(logits)", "F.cross_entropy(logits, labels)", "F.cross_entropy(input=a, target=b)", "nn.CrossEntropyLoss()(a, b)", "crit = nn.CrossEntropyLoss(**k)", "crit(a, b)", "scaler = GradScaler(enabled=x)", "tokenizer.add_tokens()", "tokenizer.add_special_tokens({**x})", "add_argument('--resume')", "x = {**y, 'labels': input_ids}",
     "model.state_dict = x", "torch.log()", "x.log()", "LoraConfig(modules_to_save=x)", "Compose(x)", "train_transform = Compose([])", "val_transform = Compose(Normalize())", "decode(outputs[0])", "outputs = model.generate()", "for_ = [model(x) for x in y]", "lambda: loss.backward()", "accelerator.prepare(*x)", "get_scheduler(num_training_steps=len(x))", "global loss"]
)  # fmt: skip
HEADS = st.sampled_from(
    [
        "for batch in val_loader:",
        "for epoch in range(3):",
        "while True:",
        "def evaluate(model, *a):",
        "def compute_loss(self):",
        "def compute_metrics(p):",
        "class GPTCausal(nn.Module):",
        "if rank == 0:",
        "if step % k == 0:",
        "with torch.no_grad():",
        "try:",
        "async def train():",
        "@torch.no_grad()\ndef forward(self):",
        "def backward(self):",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.booleans(), HEADS, STATEMENTS), min_size=1, max_size=30))
def test_any_program(parts):
    lines, depth = ["import torch"], 0
    for deeper, head, statement in parts:
        pad = "    " * depth
        if deeper and depth < 5:
            lines += [pad + line for line in head.split("\n")]
            depth += 1
            pad = "    " * depth
        elif depth and not deeper:
            lines.append(pad + "pass")
            depth -= 1
            pad = "    " * depth
        lines.append(pad + statement)
    script_of("\n".join(lines).replace("try:", "if x:"), "x.py")
