"""Crash texts as they stand in real logs, rebuilt from their wording."""

import pytest

from tuneclinic.probes.crashes import crash_of, out_of_memory


def crash(text, step=None):
    return crash_of(list(enumerate(text.strip("\n").splitlines(), 1)), "train.log", step)


TRAINER = """Traceback (most recent call last):
  File "/w/train.py", line 90, in <module>
    trainer.train()
  File "/v/transformers/trainer.py", line 2240, in train
    return inner_training_loop(
  File "/v/transformers/trainer.py", line 3740, in training_step
    {call}
  File "{path}", line 648, in {function}
    {code}
{error}
"""


def trainer(error, function="forward", path="/v/m.py", code="x", call="loss = self.compute_loss(model, inputs)"):
    return TRAINER.format(error=error, function=function, path=path, code=code, call=call)


OLD_CUDA = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.10 GiB already allocated; "
    "11.69 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
NEW_CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.15 GiB of which 12.75 MiB is free. "
    "Process 1234 has 40.20 GiB memory in use. Including non-PyTorch memory, this process has 38.90 GiB memory in use. Of the allocated memory "
    "37.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
)


def test_old_cuda_text():
    memory = out_of_memory(OLD_CUDA)
    assert (memory.device, memory.capacity, memory.allocated) == ("cuda", 23.69, 22.10)
    assert memory.asked == pytest.approx(20 / 1024)
    assert memory.free == pytest.approx(11.69 / 1024)
    assert memory.reserved_unallocated == pytest.approx(0.2)


def test_new_cuda_text():
    memory = out_of_memory(NEW_CUDA)
    assert (memory.asked, memory.capacity, memory.in_use, memory.allocated) == (1.96, 79.15, 38.90, 37.0)
    assert (memory.other_processes, memory.reserved_unallocated) == (40.2, 1.5)


@pytest.mark.parametrize(
    ("text", "device", "asked"),
    [
        (
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB of which 1.2 GiB is free.",
            "hip",
            2.0,
        ),
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.80 GB, other allocations: 1.20 GB, max allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool.",
            "mps",
            0.25,
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)",
            "host",
            1.0,
        ),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape (3, 4)", "host", 12.0),
    ],
)
def test_other_allocators(text, device, asked):
    memory = out_of_memory(text)
    assert memory.device == device
    assert memory.asked == pytest.approx(asked)


def test_no_memory_error():
    assert out_of_memory("ValueError: the memory of this is fine") is None
    assert crash("step 5 loss 1.2\nMemory usage 12.3 GiB\n{'loss': 0.5}") is None


@pytest.mark.parametrize(
    ("function", "path", "code", "call", "phase"),
    [
        ("backward", "/v/torch/_tensor.py", "torch.autograd.backward(", "self.accelerator.backward(loss)", "backward"),
        ("step", "/v/torch/optim/adamw.py", "state['exp_avg'] = torch.zeros_like(p)", "self.optimizer.step()", "optimizer"),
        ("prediction_step", "/v/trainer.py", "loss, outputs = self.compute_loss(", "self.evaluate()", "evaluation"),
        ("from_pretrained", "/v/modeling_utils.py", "model = cls(config)", "", "load"),
        ("forward", "/v/llama.py", "logits = logits.float()", "", "forward"),
        ("save_pretrained", "/v/m.py", "safe_save_file(", "", "save"),
        ("collate_fn", "/w/data.py", "return pad(x)", "", "data"),
    ],
)
def test_phase(function, path, code, call, phase):
    error = crash(trainer(NEW_CUDA, function, path, code, call or "x")).cause
    assert error.phase == phase
    assert error.memory.phase == phase


def test_frames_and_place():
    error = crash("a line\n" + trainer("ValueError: bad"), step=40).cause
    assert error.quote == "ValueError: bad"
    assert error.where == "train.log:11"
    assert error.frames[-1] == "/v/m.py:648 in forward"
    assert error.step == 40


def test_direct_cause_comes_first():
    text = (
        trainer("KeyError: 'text'")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + trainer("RuntimeError: One of the subprocesses has failed")
    )
    errors = crash(text).errors
    assert [error.kind for error in errors] == ["KeyError", "RuntimeError"]


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        ("KeyError: 'qwen9'", "ValueError: Unrecognized model", "ValueError"),
        (NEW_CUDA, "RuntimeError: cannot free", "torch.OutOfMemoryError"),
    ],
)
def test_during_handling(first, second, cause):
    text = trainer(first) + "\nDuring handling of the above exception, another exception occurred:\n\n" + trainer(second)
    assert crash(text).cause.kind == cause


def test_interleaved_ranks_and_launcher():
    one = trainer("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.").splitlines()
    two = trainer(
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    ).splitlines()
    mixed = []
    for first, second in zip(one, two, strict=False):
        mixed += [f"[rank3]: {first}", f"[rank1]: {second}"]
    mixed += [
        "W0519 20:17:28.203000 3481808 torch/distributed/elastic/multiprocessing/api.py:1014] Sending process 3482507 closing signal SIGTERM",
        "E0519 20:17:32.082000 3481808 torch/distributed/elastic/multiprocessing/api.py:988] failed (exitcode: 1) local_rank: 3 (pid: 3482516) of binary: python",
        *trainer("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ").splitlines(),
        "============================================================",
        "train.py FAILED",
    ]
    found = crash("\n".join(mixed))
    assert (found.cause.kind, found.cause.rank) == ("torch.OutOfMemoryError", 3)
    assert found.errors[1].kind.endswith(("DistBackendError", "ChildFailedError"))
    assert not found.interrupted


def test_the_others_fail_before_the_cause_is_printed():
    others = trainer(
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.21.5"
    )
    text = "\n".join(f"[rank0]: {line}" for line in others.splitlines())
    text += "\n" + "\n".join(f"[rank5]: {line}" for line in trainer("ValueError: boom").splitlines())
    assert crash(text).cause.rank == 5


def test_root_cause_of_the_summary_when_no_rank_spoke():
    text = """
E0519 20:17:32.082000 348 api.py:988] failed (exitcode: -9) local_rank: 2 (pid: 99) of binary: python
Traceback (most recent call last):
  File "/bin/torchrun", line 6, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=====
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 98)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 98
-----
Root Cause (first observed failure):
[0]:
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 99)  (SIGKILL)
  traceback : Signal 9 (SIGKILL) received by PID 99
"""
    found = crash(text)
    assert (found.cause.kind, found.cause.rank, found.cause.memory.device) == ("SIGKILL", 2, "host")
    assert not found.interrupted


@pytest.mark.parametrize(
    "line",
    [
        "Killed",
        "run.sh: line 12: 48213 Killed                  python train.py",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "[2024-05-01 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Process 123 exits with return code = -9",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 31) of binary: /usr/bin/python3",
        "Job failed with exit code: 137",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ],
)
def test_host_kill(line):
    found = crash("step 1\n" + line)
    assert found.cause.memory.device == "host"
    assert not found.interrupted


@pytest.mark.parametrize(
    "text",
    [
        trainer("KeyboardInterrupt"),
        trainer("torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15"),
        "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***",
        "[rank0]: " + trainer("KeyboardInterrupt").replace("\n", "\n[rank0]: "),
        "W0519 12:00:00 3 api.py:1] Received Signals.SIGTERM death signal, shutting down workers",
    ],
)
def test_stopped_from_outside(text):
    assert crash(text).interrupted


def test_watchdog_timeout():
    text = "[rank1]:[E519 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3645, OpType=ALLREDUCE, NumelIn=512, NumelOut=4096, Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
    error = crash(text).cause
    assert error.rank == 1
    assert "OpType=ALLREDUCE" in error.message
    assert error.quote.startswith("Watchdog caught collective operation timeout")


def test_device_assert_takes_the_stack_of_the_error_after_it():
    line = "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [{},0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    text = (
        "\n".join(line.format(block) for block in range(300))
        + "\n"
        + trainer(
            "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported\nCompile with `TORCH_USE_CUDA_DSA`"
        )
    )
    found = crash(text)
    assert found.cause.kind == "device-side assert"
    assert "srcIndex < srcSelectDimSize" in found.cause.message
    assert found.cause.phase == "forward"
    assert len(found.errors) == 2
    assert "CUDA kernel errors" in found.errors[1].message


def test_data_loader_worker_carries_the_original_error():
    text = trainer("KeyError: Caught KeyError in DataLoader worker process 0.") + trainer("KeyError: 'input_ids'").replace(
        "Traceback", "Original Traceback"
    )
    assert any(error.message == "'input_ids'" for error in crash(text).errors)


def test_message_goes_on():
    text = trainer(
        "RuntimeError: Error(s) in loading state_dict for PeftModel:\n\tsize mismatch for embed_tokens: copying a param with shape torch.Size([32002, 4096])\n\tsize mismatch for lm_head"
    )
    assert "32002" in crash(text).cause.message


def test_state_dict_error_then_other_lines():
    text = trainer("ValueError: a") + "wandb: Find logs at: ./x\n"
    assert crash(text).cause.message == "a"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "Loss scale"),
        ("OSError: [Errno 28] No space left on device", "OSError"),
        ("train.py: error: the following arguments are required: --model", "usage"),
        ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "RuntimeError"),
        ("ValueError: Attempting to unscale FP16 gradients.", "ValueError"),
        ("Segmentation fault (core dumped)", "SIGSEGV"),
    ],
)
def test_bare_lines(line, kind):
    assert crash("starting\n" + line).cause.kind == kind


def test_an_error_that_was_caught_is_none():
    text = "ConnectionError: retrying\n" + "\n".join(f"{{'loss': {i}}}" for i in range(100))
    assert crash(text) is None
    assert crash("Exception ignored in: <function X.__del__>\n" + trainer("AttributeError: 'NoneType'")) is None
    assert crash("--- Logging error ---\n" + trainer("UnicodeEncodeError: 'gbk' codec")) is None


def test_a_pasted_line_without_its_class():
    memory = crash("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity)").cause.memory
    assert (memory.device, memory.asked, memory.capacity) == ("cuda", 2.0, 23.69)


def test_a_caught_error_in_a_logger_line():
    text = "2024-05-01 10:00:00 - WARNING - upload failed: Traceback (most recent call last):\n" + "\n".join(
        trainer("TimeoutError: x").splitlines()[1:]
    )
    assert crash(text + "\n{'loss': 1.0}") is None


def test_headless_stack_of_ray():
    text = (
        "Training:  0%|  | 0/559Unhandled error (suppress with 'X=1'): \x1b[36mray::WorkerDict.update()\x1b[39m (pid=1, ip=10.0.0.3)\n"
        + "\n".join(trainer(NEW_CUDA, "backward").splitlines()[1:])
    )
    error = crash(text).cause
    assert error.phase == "backward"
    assert error.memory.asked == 1.96


@pytest.mark.parametrize("escape", ["\x1b", " "])
def test_two_actors_of_ray_in_colour(escape):
    one = [f"{escape}[36m(WorkerDict pid=11){escape}[0m {line}" for line in trainer("ValueError: first").splitlines()]
    two = [
        f"{escape}[36m(WorkerDict pid=22, ip=10.0.0.2){escape}[0m {line}" for line in trainer("KeyError: 'second'").splitlines()
    ]
    errors = crash("\n".join(line for pair in zip(one, two, strict=True) for line in pair)).errors
    assert [error.quote for error in errors] == ["ValueError: first", "KeyError: 'second'"]
    assert all(len(error.frames) == 4 for error in errors)


def test_cut_off_traceback_is_kept_as_such():
    text = "\n".join(trainer("X").splitlines()[:-2])
    error = crash(text).cause
    assert error.kind == "Traceback (most recent call last)"
    assert error.frames


def test_repeated_errors_of_many_ranks_are_bounded():
    text = "\n".join(f"[rank{rank}]: {line}" for rank in range(400) for line in trainer("ValueError: x").splitlines())
    assert len(crash(text).errors) <= 64


CAUSES = {
    "055": "booster",
    "090": "CUDA out of memory",
    "093": "CUDA out of memory",
    "124": "unexpected keyword argument 'config'",
    "153": "SIGABRT",
    "154": "CUDA out of memory",
    "155": "NCCL_ALGO",
    "156": "illegal memory access",
    "159": "No module named 'flash_attn.cute.block_sparsity'",
    "160": "CUTE flash attention library is not available",
    "161": "invalid argument",
}


@pytest.mark.corpus
def test_causes_of_real_runs(corpus):
    from tuneclinic.probes.reading import SourceFile

    for path in sorted([*corpus.glob("runs/*/*.log"), *corpus.glob("runs/*/*.txt")]):
        number = path.parent.name[:3]
        found = crash_of(list(SourceFile(path, path.name).lines()), path.name)
        if number in CAUSES:
            assert CAUSES[number] in found.cause.quote, number
            assert not found.interrupted
        elif number != "150":  # notes about a crash, written by hand
            assert found is None or found.interrupted, number


def test_a_size_with_a_cut_unit_is_no_size():
    from tuneclinic.probes.crashes.out_of_memory import out_of_memory

    memory = out_of_memory(
        "CUDA out of memory. Tried to allocate 20.00 iB. GPU 0 has a total capacity of 79.15 GiB of which 12.75 MiB is free."
    )
    assert memory.asked is None
    assert memory.capacity == 79.15
