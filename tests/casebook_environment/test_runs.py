"""Scripts, logs and configurations as runs leave them, rebuilt from the facts of public reports: read and judged end to end."""

import json

import pytest

from tuneclinic.case import Case
from tuneclinic.clinic import diagnose
from tuneclinic.registry import found

FOLDERS = {"distributed", "evaluation", "environment"}
MINE = {case.id for case in found("tuneclinic.casebook", Case) if type(case).__module__.split(".")[2] in FOLDERS}


def judged(folder, **files):
    """Case → verdict over files named by keyword (`train_py` is `train.py`)."""
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text, encoding="utf-8")
    (diagnosis,) = diagnose(folder)
    return {finding.case: finding for finding in diagnosis.findings if finding.case in MINE}


DDP = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP

def main(rank, train_set, model, optimizer):
    model = DDP(model.to(rank), device_ids=[rank])
    {sampler}
    train_loader = DataLoader(train_set, batch_size=8, num_workers=4, {argument})
    for epoch in range(5):
        {each_epoch}
        for batch in train_loader:
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {each_step}
        {save}
"""
GOOD = {
    "sampler": "sampler = DistributedSampler(train_set)",
    "argument": "sampler=sampler",
    "each_epoch": "sampler.set_epoch(epoch)",
    "each_step": "pass",
    "save": "if rank == 0:\n            torch.save(model.state_dict(), 'm.pt')\n        torch.distributed.barrier()",
}
BROKEN = {
    "sampler-not-distributed": {"sampler": "pass", "argument": "shuffle=True", "each_epoch": "pass"},
    "epoch-not-set": {"each_epoch": "pass"},
    "rank-zero-work-unguarded": {
        "save": "if rank == 0:\n            torch.save(model.state_dict(), 'm.pt')\n            torch.distributed.barrier()"
    },
    "host-sync-each-step": {"each_step": "print(loss.item()); torch.cuda.empty_cache()"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_loop_with_one_thing_broken(tmp_path, case):
    script = DDP.format(**{**GOOD, **BROKEN[case]})
    if case == "sampler-not-distributed":
        script = script.replace(", DistributedSampler", "")
    findings = judged(tmp_path, train_py=script)
    assert [name for name, finding in findings.items() if finding.verdict == "confirmed"] == [case]


def test_the_same_loop_whole(tmp_path):
    findings = judged(tmp_path, train_py=DDP.format(**GOOD))
    assert all(finding.verdict not in {"confirmed", "suspected"} for finding in findings.values())
    assert all(findings[case].verdict == "ruled_out" for case in BROKEN)


def test_a_sampler_and_prepare_together(tmp_path):
    script = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler
accelerator = Accelerator()
train_loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
for batch in train_loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
    assert judged(tmp_path, train_py=script)["sampler-doubly-distributed"].verdict == "confirmed"


SCHEDULED = """
from accelerate import Accelerator
from transformers import get_scheduler
accelerator = Accelerator()
steps = len(loader) * 3
scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=100, num_training_steps={total})
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("total", "verdict"), [("steps // accelerator.num_processes", "confirmed"), ("steps", "ruled_out")])
def test_a_prepared_scheduler_is_a_fault_only_where_the_total_was_divided(tmp_path, total, verdict):
    assert judged(tmp_path, train_py=SCHEDULED.format(total=total))["scheduler-stepped-per-process"].verdict == verdict


METRIC = """
import numpy as np
from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("gpt2")

def compute_metrics(pred):
    predictions = pred.predictions.argmax(-1){cut_predictions}
    labels = pred.label_ids{cut_labels}
    keep = labels != -100
    return {{"accuracy": (predictions[keep] == labels[keep]).mean()}}

trainer = Trainer(model=model, args=args, compute_metrics=compute_metrics)
trainer.train()
"""


def test_a_metric_without_and_with_the_shift(tmp_path):
    bad, good = tmp_path / "a", tmp_path / "b"
    bad.mkdir()
    good.mkdir()
    assert judged(bad, train_py=METRIC.format(cut_predictions="", cut_labels=""))["metric-not-shifted"].verdict == "confirmed"
    shifted = METRIC.format(cut_predictions="[:, :-1]", cut_labels="[:, 1:]")
    assert judged(good, train_py=shifted)["metric-not-shifted"].verdict == "ruled_out"


EVALUATED = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2")

def evaluate(model, val_loader):
    {mode}
    total = 0.0
    with torch.no_grad():
        for batch in val_loader:
            total += model(**batch).loss.item()
    return total / len(val_loader)

for epoch in range(3):
    model.train()
    for batch in train_loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(evaluate(model, val_loader))
"""


@pytest.mark.parametrize(("mode", "verdict"), [("pass", "confirmed"), ("model.eval()", "ruled_out")])
def test_evaluation_without_and_with_eval(tmp_path, mode, verdict):
    assert judged(tmp_path, train_py=EVALUATED.format(mode=mode))["eval-mode-forgotten"].verdict == verdict


def test_padding_on_the_right_is_told_by_transformers_itself(tmp_path):
    line = "A decoder-only architecture is being used, but right-padding was detected! For correct generation results, please set `padding_side='left'` when initializing the tokenizer."
    assert (
        judged(tmp_path, eval_log=f"WARNING:transformers.generation.utils:{line}\n")["padding-disturbs-eval"].verdict
        == "confirmed"
    )


def rows(first=2.0, last=1.0, count=60, start=0):
    return "\n".join(
        str(
            {
                "loss": round(first + (last - first) * step / count, 4),
                "grad_norm": 0.8,
                "learning_rate": 1e-4,
                "epoch": round((start + step) / 50, 2),
            }
        )
        for step in range(1, count + 1)
    )


def test_a_large_model_on_the_processor(tmp_path):
    log = (
        "[INFO|parser.py:355] >> Process rank: 0, device: cpu, n_gpu: 0, distributed training: False, compute dtype: torch.bfloat16\n"
        "trainable params: 9,232,384 || all params: 1,552,946,688 || trainable%: 0.5945\n" + rows()
    )
    assert judged(tmp_path, train_log=log)["running-on-cpu"].verdict == "confirmed"


def test_a_small_model_on_the_processor_is_meant(tmp_path):
    log = (
        "Process rank: 0, device: cpu, n_gpu: 0\ntrainable params: 40,000 || all params: 2,000,000 || trainable%: 2.0\n" + rows()
    )
    assert judged(tmp_path, train_log=log)["running-on-cpu"].verdict == "ruled_out"


def test_a_run_whose_data_are_slow(tmp_path):
    slow = "".join(
        f"2026/05/01 10:00:{step % 60:02d} - mmengine - INFO - Epoch(train) [1][{10 * step:3d}/600]  lr: 1.0e-04  eta: 0:10:00  time: 2.0000  data_time: 1.2000  memory: 9000  loss: {2 - step / 60:.4f}\n"
        for step in range(1, 61)
    )
    fast = tmp_path / "fast"
    fast.mkdir()
    assert judged(fast, train_log=slow.replace("data_time: 1.2000", "data_time: 0.0100"))["input-bound"].verdict == "ruled_out"
    bound = tmp_path / "bound"
    bound.mkdir()
    assert judged(bound, train_log=slow)["input-bound"].verdict == "confirmed"


WATCHDOG = (
    "[rank{rank}]:[E501 10:10:10.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def test_ranks_that_wait_in_different_collectives(tmp_path):
    apart = (
        rows(count=20)
        + "\n"
        + WATCHDOG.format(rank=0, seq=3645, op="_ALLGATHER_BASE")
        + WATCHDOG.format(rank=1, seq=3647, op="_REDUCE_SCATTER_BASE")
    )
    findings = judged(tmp_path, train_log=apart)
    assert findings["parameters-unsynchronised"].verdict == "suspected"
    assert findings["parameters-unsynchronised"].weight > 0


def test_a_time_out_alone_confirms_nothing(tmp_path):
    together = rows(count=20) + "\n" + "".join(WATCHDOG.format(rank=rank, seq=812, op="ALLREDUCE") for rank in (0, 1))
    findings = judged(tmp_path, train_log=together)
    assert [name for name, finding in findings.items() if finding.verdict == "confirmed"] == []


def test_two_files_that_set_different_templates(tmp_path):
    base = "model_name_or_path: Qwen/Qwen2-7B-Instruct\nstage: sft\ndataset: mine\nfinetuning_type: lora\nlearning_rate: 1.0e-4\n"
    findings = judged(tmp_path, train_yaml=base + "template: qwen\n", eval_yaml=base + "template: default\n")
    assert findings["eval-preprocessing-differs"].verdict in {
        "confirmed",
        "not_checked",
    }  # two configurations may be told apart as two runs


BASE = {
    "model_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "template": "llama3",
    "finetuning_type": "lora",
    "stage": "sft",
    "lora_rank": 16,
}


@pytest.mark.parametrize(
    ("changes", "finish", "verdict"),
    [
        ({}, "length", "confirmed"),
        ({}, "stop", "ruled_out"),
        ({"model_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct"}, "length", "ruled_out"),
        ({"additional_target": "embed_tokens,lm_head"}, "length", "ruled_out"),
        ({"template": "alpaca"}, "length", "ruled_out"),
    ],
)
def test_a_base_model_and_its_near_misses(tmp_path, changes, finish, verdict):
    outputs = "\n".join(
        json.dumps({"prompt": f"question {n}", "output": f"answer {n} and so on and on", "finish_reason": finish})
        for n in range(6)
    )
    config = "\n".join(f"{key}: {value}" for key, value in {**BASE, **changes}.items())
    findings = judged(tmp_path, train_yaml=config + "\n", outputs_jsonl=outputs + "\n")
    assert findings["base-model-with-chat-template"].verdict == verdict


SMI = """Tue May  5 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01     CUDA Version: 12.2     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          Off |   00000000:07:00.0 Off |                    0 |
| N/A   33C    P0              62W / 400W |       4MiB /  81920MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
"""


@pytest.mark.parametrize(("torch", "verdict"), [("2.9.1+cu130", {"suspected", "confirmed"}), ("2.5.1+cu121", {"ruled_out"})])
def test_a_driver_beside_the_wheel(tmp_path, torch, verdict):
    finding = judged(tmp_path, nvidia_smi_txt=SMI, requirements_txt=f"torch=={torch}\ntransformers==4.57.1\n")["driver-mismatch"]
    shown = (
        finding.verdict if finding.verdict != "not_checked" or finding.weight <= 0 else "suspected"
    )  # silent without a symptom
    assert shown in verdict
