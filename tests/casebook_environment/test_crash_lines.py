"""Errors as libraries print them, written into a log and diagnosed as a user's would be: the cause is named, and named alone."""

import pytest

from tuneclinic.case import Case
from tuneclinic.clinic import diagnose
from tuneclinic.registry import found

FOLDERS = {"distributed", "evaluation", "environment"}
MINE = {case.id for case in found("tuneclinic.casebook", Case) if type(case).__module__.split(".")[2] in FOLDERS}
MINE -= {"error-in-script"}  # it names any error of a script's own, also those whose cause another case knows
STACK = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 41, in <module>\n    main()\n'

ERRORS = {
    "disk-full": (
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded: '/home/user/.cache/huggingface/hub/tmp12'",
        "RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 14389760 vs 14389648",
        "RuntimeError: PytorchStreamWriter failed writing file data/213: file write failed",
        'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
        "RuntimeError: unable to write to file </torch_1189_3062317543_0>: No space left on device (28)",
    ),
    "driver-mismatch": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Detected CUDA version 12.4 mismatches the version that was used to compile PyTorch (11.8)",
    ),
    "unknown-argument": (
        "ValueError: Some keys are not used by the HfArgumentParser: ['finetunning_type']",
        "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--lora_rnk', '8']",
        "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
        "TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig\nlora_rr\n  Extra inputs are not permitted [type=extra_forbidden]",
        "omegaconf.errors.ConfigAttributeError: Key 'optimiser' is not in struct",
        "hydra.errors.ConfigCompositionException: Could not override 'trainer.epoch'.",
    ),
    "version-mismatch": (
        "ImportError: cannot import name 'AdamW' from 'transformers' (/opt/venv/lib/python3.11/site-packages/transformers/__init__.py)",
        "ImportError: /opt/venv/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
        "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.22.0.",
        "ModuleNotFoundError: No module named 'triton.ops'",
        "ModuleNotFoundError: No module named 'deepspeed'",
        "AttributeError: module 'torch.distributed' has no attribute 'ReduceOp'",
        "RuntimeError: operator torchvision::nms does not exist",
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
        "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now require users to upgrade torch to at least v2.6",
        "ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers does not recognize this architecture.",
        "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed.",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
        "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install -U bitsandbytes`",
    ),
    "running-on-cpu": ("AssertionError: Torch not compiled with CUDA enabled",),
    "parameters-unsynchronised": (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 290 params, while rank 0 has inconsistent 291 params.",
    ),
    "unequal-batches": ("RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks.",),
    "global-batch-grew": (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 2 * 8",
    ),
}
CASES = [(case, text) for case, texts in ERRORS.items() for text in texts]

OTHERS = (
    "ModuleNotFoundError: No module named 'dataset_utils'",
    "ModuleNotFoundError: No module named 'torchmetrics_local'",
    "ImportError: cannot import name 'build_prompt' from 'utils' (/home/user/utils.py)",
    "KeyError: 'conversations'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'",
    "PermissionError: [Errno 13] Permission denied: 'out/checkpoint-500'",
    "TypeError: forward() missing 1 required positional argument: 'input_ids'",
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.02 GiB is free.",
    "ValueError: Target modules {'qq_proj'} not found in the base model.",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "IndexError: index out of range in self",
)
"""Errors with other causes, near misses among them: none of these folders may confirm anything."""


def verdicts(folder, text, before=STACK):
    (folder / "train.log").write_text(f"{before}{text}\n", encoding="utf-8")
    (diagnosis,) = diagnose(folder)
    return {finding.case: finding for finding in diagnosis.findings if finding.case in MINE}, diagnosis


@pytest.mark.parametrize(("case", "text"), CASES)
def test_the_cause_is_named_and_no_other(tmp_path, case, text):
    findings, diagnosis = verdicts(tmp_path, text)
    assert [name for name, finding in findings.items() if finding.verdict == "confirmed"] == [case]
    assert diagnosis.conclusion == "fault"
    assert findings[case].exhibits[0].where


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_confirm_nothing_here(tmp_path, text):
    findings, _ = verdicts(tmp_path, text)
    assert [name for name, finding in findings.items() if finding.verdict == "confirmed"] == []


def test_a_parser_ends_without_a_traceback(tmp_path):
    findings, _ = verdicts(
        tmp_path, "train.py: error: unrecognized arguments: --lora-rank 16", before="usage: train.py [-h] [--lora_r LORA_R]\n"
    )
    assert findings["unknown-argument"].verdict == "confirmed"


def test_a_renamed_argument_is_told_its_new_name(tmp_path):
    findings, _ = verdicts(tmp_path, "TypeError: SFTConfig.__init__() got an unexpected keyword argument 'max_seq_length'")
    told = [exhibit.text for exhibit in findings["unknown-argument"].exhibits]
    assert any("max_length" in getattr(text, "en", "") and "max_length" in getattr(text, "zh", "") for text in told)


def test_a_caught_import_error_of_a_run_that_trained_is_none(tmp_path):
    rows = "\n".join(
        f"{{'loss': {2 - 0.01 * step:.4f}, 'grad_norm': 0.9, 'learning_rate': 1e-4, 'epoch': {step / 50:.2f}}}"
        for step in range(1, 51)
    )
    (tmp_path / "train.log").write_text(
        "WARNING: flash_attn could not be imported: No module named 'flash_attn'\n"
        + rows
        + "\n{'train_runtime': 99.1, 'train_loss': 1.7}\n",
        encoding="utf-8",
    )
    (diagnosis,) = diagnose(tmp_path)
    raised = [
        finding.case for finding in diagnosis.findings if finding.case in MINE and finding.verdict in {"confirmed", "suspected"}
    ]
    assert raised == []


@pytest.mark.corpus
def test_crashes_of_the_corpus_are_named(corpus):
    wanted = {"055": "unknown-argument", "124": "unknown-argument", "159": "version-mismatch", "160": "version-mismatch"}
    for number, case in wanted.items():
        folder = next((corpus / "runs").glob(f"{number}-*"))
        confirmed = {finding.case for diagnosis in diagnose(folder) for finding in diagnosis.having("confirmed")}
        assert case in confirmed, number


@pytest.mark.corpus
def test_healthy_runs_of_the_corpus_raise_nothing_here(corpus):
    import json

    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry.get("class") != "run" or not entry["file"] or not {"healthy", "bait"} & set(entry.get("findings", ())):
            continue
        for diagnosis in diagnose((corpus / entry["file"]).parent):
            raised = [
                finding.case
                for finding in diagnosis.findings
                if finding.case in MINE and finding.verdict in {"confirmed", "suspected"}
            ]
            assert raised == [], entry["file"]


def test_a_caught_traceback_is_no_end(tmp_path):
    """An optional import fails with its whole traceback, and the run trains on, unfinished."""
    rows = "\n".join(
        f"{{'loss': {2 - 0.01 * step:.4f}, 'grad_norm': 0.9, 'learning_rate': 1e-4, 'epoch': {step / 50:.2f}}}"
        for step in range(1, 51)
    )
    (tmp_path / "train.log").write_text(f"{STACK}ModuleNotFoundError: No module named 'apex'\n{rows}\n", encoding="utf-8")
    (diagnosis,) = diagnose(tmp_path)
    assert "version-mismatch" not in {finding.case for finding in diagnosis.having("confirmed")}
