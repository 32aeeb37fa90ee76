"""Every fact on a script that has it, and on a near twin that has not: one thing changed."""

import pytest

from tuneclinic.probes.scripts import parse, script_of

LOOP = """
import torch
torch.manual_seed(0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
train_loader = DataLoader(train_set, batch_size=4, shuffle=True, num_workers=4)
for epoch in range(3):
    model.train()
    for batch in train_loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
"""
EVALUATE = (
    LOOP.replace("    model.train()", "    model.train()\n    evaluate(model, val_loader)")
    + """
@torch.no_grad()
def evaluate(model, val_loader):
    model.eval()
    total = 0.0
    for batch in val_loader:
        loss = model(**batch).loss
        total += loss.item()
    model.train()
    return total
"""
)
DDP = (
    LOOP.replace("torch.manual_seed(0)", "torch.manual_seed(0)\nmodel = DDP(model)\nsampler = DistributedSampler(train_set)")
    .replace("shuffle=True", "sampler=sampler")
    .replace("    model.train()", "    sampler.set_epoch(epoch)\n    model.train()")
)
CAUSAL = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained(n)\n"
OWN_LOSS = (
    CAUSAL
    + """
import torch.nn.functional as F
for batch in train_loader:
    logits = model(batch["input_ids"]).logits
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), batch["input_ids"][:, 1:].reshape(-1))
    loss.backward()
"""
)
ACCUMULATE = """
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss / k
    loss.backward()
    if (step + 1) % k == 0:
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
"""
NESTED = """
while step < total:
    for micro_step in range(accumulation):
        logits, loss = model(x, y)
        loss = loss / accumulation
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCALER = """
scaler = torch.cuda.amp.GradScaler()
for batch in train_loader:
    optimizer.zero_grad()
    loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
PEFT = """
model = AutoModelForCausalLM.from_pretrained(n)
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
model = get_peft_model(model, config)
optimizer = torch.optim.AdamW(model.parameters())
""" + LOOP.replace("optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\n", "")
TOKENS = """
model = AutoModelForCausalLM.from_pretrained(n)
tokenizer = AutoTokenizer.from_pretrained(n)
tokenizer.add_tokens(["<a>", "</a>"])
model.resize_token_embeddings(len(tokenizer))
config = LoraConfig(r=8, modules_to_save=["embed_tokens", "lm_head"])
"""
MERGE = """
model = AutoModelForCausalLM.from_pretrained(n, torch_dtype=torch.float32)
model = PeftModel.from_pretrained(model, a)
model = model.merge_and_unload()
"""
GENERATE = """
tokenizer.padding_side = "left"
inputs = tokenizer(prompts, padding=True, return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=20)
text = tokenizer.batch_decode(outputs[:, inputs["input_ids"].shape[1]:])
"""
OWN_GENERATE = """
for _ in range(max_new_tokens):
    logits = model(ids)
    next_id = torch.argmax(logits[:, -1], dim=-1)
    if next_id == eos_id:
        break
    ids = torch.cat([ids, next_id], dim=1)
"""
ATTENTION = """
class CausalSelfAttention(nn.Module):
    def forward(self, x):
        q, k, v = self.qkv(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
METRIC = (
    CAUSAL
    + """
def compute_metrics(eval_pred):
    logits, labels = eval_pred
    preds = logits.argmax(-1)[:, :-1]
    labels = labels[:, 1:]
    return {"acc": (preds == labels).mean()}
trainer = Trainer(model=model, compute_metrics=compute_metrics)
"""
)
COPY = (
    CAUSAL
    + """
def encode(row):
    out = tokenizer(row["text"], padding="max_length", max_length=512)
    out["labels"] = [t if t != tokenizer.pad_token_id else -100 for t in out["input_ids"]]
    return out
trainer = Trainer(model=model)
"""
)
FILLED = """
IGNORE = -1
labels[mask] = IGNORE
criterion = nn.CrossEntropyLoss(ignore_index=-1)
for x in train_loader:
    loss = criterion(logits, labels)
    loss.backward()
"""
ACCELERATE = """
accelerator = Accelerator()
scheduler = get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=0, num_training_steps=total)
model, optimizer, train_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, scheduler)
"""
RESUME = (
    """
resume_from = args.resume
if args.resume:
    state = torch.load(args.resume, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
"""
    + LOOP
)
OWN_MODEL = """
class Net(nn.Module):
    def forward(self, input_ids, labels=None):
        logits = self.lm(input_ids)
        loss = self.criterion(logits, labels)
        return {"loss": loss, "logits": logits}
trainer = Trainer(model=Net(), args=args)
"""

TWINS = [
    ("eval-without-eval-mode", EVALUATE, "    model.eval()\n", ""),
    ("eval-without-no-grad", EVALUATE, "@torch.no_grad()\n", ""),
    ("train-mode-not-restored", EVALUATE.replace("for epoch in range(3):\n    model.train()", "model.train()\nfor epoch in range(3):"), "    model.train()\n    return", "    return"),
    ("loss-kept-with-graph", LOOP.replace("for epoch", "total = 0\nfor epoch").replace("        scheduler.step()", "        total += loss.item()"), "loss.item()", "loss"),
    ("loss-kept-with-graph", LOOP.replace("for epoch", "history = []\nfor epoch").replace("        scheduler.step()", "        history.append(loss.detach())"), "loss.detach()", "loss"),
    ("outputs-kept", LOOP.replace("for epoch", "kept = []\nfor epoch").replace("loss = model(**batch).loss", "outputs = model(**batch)\n        loss = outputs.loss\n        kept.append(outputs.logits.argmax(-1))"), ".logits.argmax(-1)", ".logits"),
    ("loader-not-distributed", DDP.replace("sampler=sampler", "sampler=DistributedSampler(train_set)").replace("sampler = DistributedSampler(train_set)", ""),
     "sampler=DistributedSampler(train_set)", "shuffle=True"),
    ("loader-doubly-distributed", ACCELERATE + "train_loader = DataLoader(d, shuffle=True)\ntrain_loader = accelerator.prepare(train_loader)\n" + LOOP.replace("train_loader =", "other ="), "DataLoader(d, shuffle=True)", "DataLoader(d, sampler=DistributedSampler(d))"),
    ("set-epoch-missing", DDP, "    sampler.set_epoch(epoch)\n", ""),
    ("shuffle-off", LOOP, "shuffle=True, ", ""),
    ("shuffle-off", LOOP, "shuffle=True", "shuffle=False"),
    ("rank-zero-save-without-barrier", LOOP + "        if rank == 0:\n            torch.save(model.state_dict(), p)\n        dist.barrier()\n", "        dist.barrier()\n", ""),
    ("rank-zero-collective", LOOP + "        if accelerator.is_main_process:\n            print(1)\n        accelerator.wait_for_everyone()\n", "        accelerator.wait", "            accelerator.wait"),
    ("labels-not-shifted", OWN_LOSS, 'logits[:, :-1].reshape(-1, V), batch["input_ids"][:, 1:].reshape(-1)', 'logits.reshape(-1, V), batch["input_ids"].reshape(-1)'),
    ("labels-shifted-twice", CAUSAL + "for b in train_loader:\n    loss = model(input_ids=b['x'], labels=b['x']).loss\n    loss.backward()\n", "labels=b['x']", "labels=b['x'][:, 1:]"),
    ("labels-shifted-twice", CAUSAL + "def enc(ids):\n    return {'input_ids': ids, 'labels': ids}\ntrainer = Trainer(model=model)\n", "'input_ids': ids, 'labels': ids", "'input_ids': ids[:-1], 'labels': ids[1:]"),
    ("ignore-index-unset", FILLED, "ignore_index=-1", ""),
    ("pad-in-labels", COPY, '[t if t != tokenizer.pad_token_id else -100 for t in out["input_ids"]]', 'out["input_ids"].copy()'),
    ("optimizer-before-peft", PEFT, "model = get_peft_model(model, config)\noptimizer = torch.optim.AdamW(model.parameters())", "optimizer = torch.optim.AdamW(model.parameters())\nmodel = get_peft_model(model, config)"),
    ("optimizer-wrong-parameters", LOOP, "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)", "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\nmodel = AutoModelForCausalLM.from_pretrained(n)"),
    ("optimizer-wrong-parameters", LOOP, "model.parameters()", "teacher.parameters()"),
    ("zero-grad-missing", LOOP, "        optimizer.zero_grad()\n", ""),
    ("scheduler-before-optimizer", LOOP, "        optimizer.step()\n        scheduler.step()", "        scheduler.step()\n        optimizer.step()"),
    ("scheduler-in-microstep", ACCUMULATE, "        scheduler.step()\n        optimizer.zero_grad()", "        optimizer.zero_grad()\n    scheduler.step()"),
    ("accumulation-not-divided", ACCUMULATE, ".loss / k", ".loss"),
    ("accumulation-not-divided", NESTED, "        loss = loss / accumulation\n", ""),
    ("zero-grad-missing", NESTED, "    optimizer.zero_grad()\n", ""),
    ("scheduler-multiplied", ACCELERATE, "num_training_steps=total", "num_training_steps=total // accelerator.num_processes"),
    ("scaler-misuse", SCALER, "    scaler.unscale_(optimizer)\n", ""),
    ("scaler-misuse", SCALER, "    scaler.step(optimizer)\n", "    optimizer.step()\n"),
    ("scaler-misuse", SCALER, "    scaler.update()\n", ""),
    ("loss-summed", OWN_LOSS.replace(".reshape(-1))", ".reshape(-1), reduction='sum')\n    loss = loss / n"), "\n    loss = loss / n", ""),
    ("detach-in-loss", LOOP, "loss = model(**batch).loss", "loss = model(**batch).loss.detach()\n        loss.requires_grad_()"),
    ("no-grad-in-forward", LOOP, "        loss = model(**batch).loss", "        with torch.no_grad():\n            loss = model(**batch).loss"),
    ("everything-frozen", "for p in model.parameters():\n    p.requires_grad = False\nfor p in model.lm_head.parameters():\n    p.requires_grad = True\n" + LOOP, "for p in model.lm_head.parameters():\n    p.requires_grad = True\n", ""),
    ("checkpointing-without-input-grads", PEFT, "model.gradient_checkpointing_enable()\nmodel.enable_input_require_grads()\nmodel = get_peft_model(model, config)", "model = get_peft_model(model, config)\nmodel.gradient_checkpointing_enable()"),
    ("pure-half-weights", "model = AutoModelForCausalLM.from_pretrained(n, torch_dtype=torch.float32)\n" + LOOP, "torch.float32", "torch.float16"),
    ("log-of-softmax", "p = torch.log_softmax(x, -1)\n", "torch.log_softmax(x, -1)", "torch.log(torch.softmax(x, -1))"),
    ("label-smoothing", OWN_LOSS, ".reshape(-1))", ".reshape(-1), label_smoothing=0.1)"),
    ("causal-mask-missing", ATTENTION, ", is_causal=True", ""),
    ("pad-is-eos", "tokenizer.pad_token = '<pad>'\n", "'<pad>'", "tokenizer.eos_token"),
    ("pad-is-eos-with-lm-collator", "tokenizer.pad_token = '<pad>'\nc = DataCollatorForLanguageModeling(tokenizer, mlm=False)\n", "'<pad>'", "tokenizer.eos_token"),
    ("response-template-collator", "c = DataCollatorForSeq2Seq(tokenizer)\n", "DataCollatorForSeq2Seq(tokenizer)", "DataCollatorForCompletionOnlyLM('### Answer: ', tokenizer=tokenizer)"),
    ("double-bos-tokenised", "t = tokenizer.apply_chat_template(m, tokenize=False)\nx = tokenizer(t, add_special_tokens=False)\n", ", add_special_tokens=False", ""),
    ("state-dict-overridden", "model.save_pretrained(p)\n", "model.save", "old = model.state_dict\nmodel.state_dict = (lambda self, *_: get(self, old())).__get__(model)\nmodel.save"),
    ("merge-into-quantised", MERGE, "torch_dtype=torch.float32", "load_in_4bit=True"),
    ("merge-in-half", MERGE, "torch.float32", "torch.float16"),
    ("resume-ignored", "a = TrainingArguments(resume_from_checkpoint='c')\ntrainer.train(resume_from_checkpoint='c')\n", "trainer.train(resume_from_checkpoint='c')", "trainer.train()"),
    ("resume-ignored", "parser.add_argument('--resume-from')\na = parser.parse_args()\nprint(a.resume_from)\n", "print(a.resume_from)", "print(a.lr)"),
    ("resume-weights-only", RESUME, '    optimizer.load_state_dict(state["optimizer"])\n', ""),
    ("resume-weights-only", "model = AutoModelForCausalLM.from_pretrained('out/checkpoint-500')\ntrainer.train(resume_from_checkpoint=True)\n", "resume_from_checkpoint=True", ""),
    ("random-sampler-unseeded-resume", RESUME.replace("        optimizer.zero_grad()", "        if step < start_step:\n            continue\n        optimizer.zero_grad()"), "torch.manual_seed(0)\n", ""),
    ("metric-not-shifted", METRIC, "[:, :-1]\n    labels = labels[:, 1:]", ""),
    ("eval-preprocess-differs", "train_transform = Compose([Resize(2), Normalize(a, b)])\nval_transform = Compose([Resize(2), Normalize(a, b)])\n", "2), Normalize(a, b)])\nval_transform = Compose([Resize(2), Normalize(a, b)])", "2), Normalize(a, b)])\nval_transform = Compose([Resize(2)])"),
    ("padding-side-right-generation", GENERATE, '"left"', '"right"'),
    ("generate-without-stop", OWN_GENERATE, "    if next_id == eos_id:\n        break\n", ""),
    ("generate-without-stop", GENERATE, "max_new_tokens=20", "max_new_tokens=20, eos_token_id=None"),
    ("padding-side-right-generation", "tokenizer.pad_token = tokenizer.eos_token\nx = tokenizer(texts, padding=True, return_tensors='pt')\ny = model.generate(**x)\n", "**x", "x['input_ids'].to(device)"),
    ("padding-side-right-generation", "tokenizer.pad_token_id = tokenizer.eos_token_id\nx = tokenizer(texts, padding=True)\ny = model.generate(x.input_ids, attention_mask=x.attention_mask)\n", ", attention_mask=x.attention_mask", ""),
    ("generate-without-template", "text = tokenizer.apply_chat_template(q, tokenize=False)\nx = tokenizer(text, add_special_tokens=False)\ny = model.generate(**x)\n", "text = tokenizer.apply_chat_template(q, tokenize=False)\n", ""),
    ("double-bos-tokenised", "text = tokenizer.apply_chat_template(q, tokenize=False)\nx = tokenizer(text, add_special_tokens=False)\nout = llm.generate(prompt_token_ids=x)\n", "prompt_token_ids=x", "text"),
    ("scheduler-multiplied", "accelerator = Accelerator()\nsteps = len(loader) * 3\nloader = accelerator.prepare(loader)\ns = get_scheduler('linear', opt, num_training_steps=steps)\ns = accelerator.prepare(s)\n", "steps = len(loader) * 3\nloader = accelerator.prepare(loader)\n", "loader = accelerator.prepare(loader)\nsteps = len(loader) * 3\n"),
    ("prompt-not-sliced", GENERATE, '[:, inputs["input_ids"].shape[1]:]', ""),
    ("item-each-step", LOOP + "        if step % 10 == 0:\n            log(loss.item())\n", "        if step % 10 == 0:\n            log", "        log"),
    ("empty-cache-each-step", LOOP + "        if step % 10 == 0:\n            torch.cuda.empty_cache()\n", "        if step % 10 == 0:\n            torch", "        torch"),
    ("workers-zero", LOOP, ", num_workers=4", ""),
    ("tokens-added-without-resize", TOKENS, "model.resize_token_embeddings(len(tokenizer))\n", ""),
    ("embeddings-not-saved", TOKENS, ', modules_to_save=["embed_tokens", "lm_head"]', ""),
    ("normalised-twice", "image = image * 1.0\nx = processor(images=image)\n", "image * 1.0", "image / 255.0"),
    ("normalised-twice", "t = Compose([ToTensor(), Normalize(a, b)])\n", "Normalize(a, b)", "Normalize(a, b), Normalize(c, d)"),
    ("from-config-not-pretrained", "model = AutoModelForCausalLM.from_config(c)\nmodel.load_state_dict(w)\n" + LOOP, "model.load_state_dict(w)\n", ""),
    ("no-loss-returned", OWN_MODEL, '        loss = self.criterion(logits, labels)\n        return {"loss": loss, "logits": logits}', '        return {"logits": logits}'),
    ("no-loss-returned", "class T(Trainer):\n    def compute_loss(self, model, inputs):\n        return model(**inputs).loss\n", "        return model", "        x = model"),
    ("uses-torch-load", "x = torch.load(p, weights_only=True)\n", ", weights_only=True", ""),
    ("seed-missing", LOOP, "torch.manual_seed(0)\n", ""),
]  # fmt: skip
CLOSED = [
    "eval-without-eval-mode",
    "train-mode-not-restored",
    "eval-without-no-grad",
    "loss-kept-with-graph",
    "outputs-kept",
    "loader-not-distributed",
    "loader-doubly-distributed",
    "set-epoch-missing",
    "shuffle-off",
    "rank-zero-save-without-barrier",
    "rank-zero-collective",
    "labels-not-shifted",
    "labels-shifted-twice",
    "ignore-index-unset",
    "pad-in-labels",
    "optimizer-before-peft",
    "optimizer-wrong-parameters",
    "zero-grad-missing",
    "scheduler-before-optimizer",
    "scheduler-in-microstep",
    "scheduler-multiplied",
    "scaler-misuse",
    "accumulation-not-divided",
    "loss-summed",
    "detach-in-loss",
    "no-grad-in-forward",
    "everything-frozen",
    "checkpointing-without-input-grads",
    "pure-half-weights",
    "log-of-softmax",
    "label-smoothing",
    "causal-mask-missing",
    "pad-is-eos",
    "pad-is-eos-with-lm-collator",
    "response-template-collator",
    "double-bos-tokenised",
    "state-dict-overridden",
    "merge-into-quantised",
    "merge-in-half",
    "resume-ignored",
    "resume-weights-only",
    "random-sampler-unseeded-resume",
    "metric-not-shifted",
    "eval-preprocess-differs",
    "padding-side-right-generation",
    "generate-without-stop",
    "generate-without-template",
    "prompt-not-sliced",
    "item-each-step",
    "empty-cache-each-step",
    "workers-zero",
    "tokens-added-without-resize",
    "embeddings-not-saved",
    "normalised-twice",
    "from-config-not-pretrained",
    "no-loss-returned",
    "uses-torch-load",
    "seed-missing",
]
WITHOUT_PRECONDITION = {"response-template-collator", "generate-without-template", "loader-not-distributed", "merge-in-half"}


def facts(text):
    script = script_of(text, "train.py")
    assert script is not None
    return script


@pytest.mark.parametrize(
    ("name", "healthy", "old", "new"), TWINS, ids=[f"{name}-{number}" for number, (name, *_) in enumerate(TWINS)]
)
def test_twins(name, healthy, old, new):
    assert old in healthy
    well, sick = facts(healthy), facts(healthy.replace(old, new))
    assert well.fact(name) is None, well.fact(name)
    found = sick.fact(name)
    assert found is not None
    assert name in sick.checked
    assert found.quote == healthy.replace(old, new).split("\n")[found.line - 1].strip()
    if name not in WITHOUT_PRECONDITION:
        assert name in well.checked, "a clean script that the check applies to must say so"


def test_every_fact_has_twins_and_no_other_name_exists():
    assert {name for name, *_ in TWINS} == set(CLOSED)
    for _, healthy, old, new in TWINS:
        for script in (facts(healthy), facts(healthy.replace(old, new))):
            assert script.checked | {fact.name for fact in script.facts} <= set(CLOSED)


@pytest.mark.parametrize(
    "text",
    [LOOP, EVALUATE, DDP, OWN_LOSS, ACCUMULATE, SCALER, PEFT, TOKENS, MERGE, GENERATE, METRIC, COPY, FILLED, RESUME, OWN_MODEL],
)
def test_a_sound_script_has_no_fact_that_speaks_of_a_fault(text):
    harmless = {"seed-missing", "uses-torch-load", "workers-zero", "item-each-step", "generate-without-template"}
    assert [fact for fact in facts(text).facts if fact.name not in harmless] == []


def test_a_collator_that_pads_labels_itself_is_no_fault():
    text = COPY.replace('padding="max_length", ', "").replace(
        '[t if t != tokenizer.pad_token_id else -100 for t in out["input_ids"]]', 'out["input_ids"].copy()'
    )
    script = facts(text + "\ncollator = DataCollatorForSeq2Seq(tokenizer, padding=True)\n")
    assert "pad-in-labels" in script.checked
    assert script.fact("pad-in-labels") is None


def test_places():
    found = facts(LOOP.replace("shuffle=True, ", "")).fact("shuffle-off")
    assert found.where == f"train.py:{found.line}"
    assert found.quote.startswith("train_loader = DataLoader(")


def test_no_python():
    assert script_of("def f(:", "x.py") is None
    assert script_of("x = 1\x00", "x.py") is None
    assert parse("(" * 5000 + ")" * 5000) is None


def test_nothing_is_run(tmp_path):
    target = tmp_path / "ran"
    assert script_of(f"import torch\nopen({str(target)!r}, 'w')\n", "x.py") is not None
    assert not target.exists()
