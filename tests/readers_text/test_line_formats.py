"""Every line format on small samples rebuilt from what its trainer prints."""

import math

import pytest

from tuneclinic.probes.lines import formats

SAMPLES = [
    ("{'eps': 1, 'objective/kl': 0.5, 'policy/approxkl_avg': 0.01, 'loss/policy_avg': -0.02, 'loss/value_avg': 0.3, 'episode': 128}", {"loss": -0.02, "kl": 0.5}),
    ("{'loss': 1.6627, 'grad_norm': 17.04, 'learning_rate': 3e-06, 'epoch': 0.02}", {"loss": 1.6627, "grad_norm": 17.04, "learning_rate": 3e-06, "epoch": 0.02}),
    ("{'loss': '2.1', 'grad_norm': '0.8', 'learning_rate': '1e-05', 'epoch': '0.5'}", {"loss": 2.1, "grad_norm": 0.8, "learning_rate": 1e-05, "epoch": 0.5}),
    ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 1.0}", {"loss": 0.0, "grad_norm": math.nan}),
    ("{'loss': inf, 'grad_norm': -inf, 'epoch': 1.0}", {"loss": math.inf, "grad_norm": -math.inf}),
    ('{"loss": 2.5, "token_acc": 0.61, "epoch": 0.02, "global_step/max_steps": "5/438", "memory(GiB)": 20.5}', {"loss": 2.5, "accuracy": 0.61, "step": 5, "total_steps": 438, "memory_gib": 20.5}),
    ("{'eval_loss': 1.5, 'eval_runtime': 3.2, 'eval_samples_per_second': 31.0, 'epoch': 1.0}", {"eval_loss": 1.5, "eval_runtime": 3.2}),
    ("  7%|6     | 15/230 [02:43<39:59, 11.16s/it]{'loss': 0.9, 'learning_rate': 1e-4, 'epoch': 0.3}", {"bar": 15, "bar_total": 230, "loss": 0.9}),
    ("05/17/2024 01:03:18 - INFO - llmtuner.extras.callbacks - {'loss': 1.7488, 'learning_rate': 1.9112e-04, 'epoch': 0.13}", {"loss": 1.7488, "learning_rate": 1.9112e-04}),
    ("{'loss': 0.69, 'rewards/chosen': 0.01, 'rewards/rejected': -0.02, 'rewards/accuracies': 0.5, 'rewards/margins': 0.03, 'logps/chosen': -120.5, 'epoch': 0.1}", {"rewards/margins": 0.03, "logps/chosen": -120.5}),
    ("{'loss': 0.0, 'reward': 1.25, 'reward_std': 0.5, 'completions/mean_length': 200.0, 'kl': 0.001, 'epoch': 0.1}", {"reward": 1.25, "completion_length": 200.0, "kl": 0.001}),
    ("1|23|Loss: 1.2345: 12%|#2        | 23/190 [00:31<03:47,  1.36s/it]", {"epoch": 1, "step": 23, "loss": 1.2345}),
    ("Step 1 | loss:1.5 lr:2e-05 tokens_per_second_per_gpu:1234.5 peak_memory_active:10.5", {"step": 1, "loss": 1.5, "learning_rate": 2e-05, "tokens_per_second": 1234.5}),
    ("[titan] 2026-05-20 02:55:16,788 - root - INFO - step: 10  loss:  5.04052  grad_norm:  2.1000  memory: 169.10GiB(94.81%)  tps: 10,347  tflops: 871.78  mfu: 38.75%", {"step": 10, "loss": 5.04052, "grad_norm": 2.1, "memory_gib": 169.10, "tokens_per_second": 10347}),
    (" iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 | learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |", {"step": 122, "total_steps": 250000, "loss": 2.50422, "loss_scale": 1.0, "grad_norm": 0.231, "step_seconds": 86.5452, "learning_rate": 9.15e-06}),
    (" validation loss at iteration 1000 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 | ", {"step": 1000, "eval_loss": 2.5, "eval_perplexity": 12.0}),
    ("iter 100: loss 2.3456, time 12.34ms, mfu 3.10%", {"step": 100, "loss": 2.3456, "step_seconds": 0.01234, "mfu": 3.1}),
    ("step 250: train loss 2.1234, val loss 2.3456", {"step": 250, "train_split_loss": 2.1234, "eval_loss": 2.3456}),
    ("step 00010/00500 (2.00%) | loss: 5.471677 | grad norm: 0.5 | lrm: 1.00 | dt: 5.05ms | tok/sec: 25,328 | mfu: 0.00 | total time: 0.01m", {"step": 10, "total_steps": 500, "loss": 5.471677, "step_seconds": 0.00505, "tokens_per_second": 25328}),
    ("Step 00250 | Validation bpb: 0.9123", {"step": 250, "eval_bpb": 0.9123}),
    ("04/21 21:03:53 - mmengine - INFO - Epoch(train) [1][10/90]  lr: 1.000e-02  eta: 0:00:25  time: 0.010  data_time: 0.000  memory: 2048  loss: 11.4723", {"epoch": 1, "epoch_step": 10, "epoch_steps": 90, "loss": 11.4723, "memory_gib": 2.0, "learning_rate": 0.01}),
    ("04/21 21:03:53 - mmengine - INFO - Iter(train) [ 10/500]  lr: 1.0e-05  eta: 1:00:25  time: 0.5  loss: 1.4", {"step": 10, "total_steps": 500, "loss": 1.4}),
    ("step:10 - actor/pg_loss:np.float64(0.0351) - actor/grad_norm:0.4 - critic/rewards/mean:-13.5 - actor/lr:1e-06", {"step": 10, "loss": 0.0351, "grad_norm": 0.4, "reward": -13.5, "learning_rate": 1e-06}),
    ("step:1 - train/loss:0.92 - train/lr(1e-3):0.00027 - train/time(s):6.3", {"step": 1, "loss": 0.92, "learning_rate": 2.7e-07, "step_seconds": 6.3}),
    ("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", {"loss_scale": 32768}),
    ("[deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648.0", {"loss_scale": 2147483648}),
    ("[2024-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-05], mom=[[0.9, 0.95]]", {"step": 10, "skipped_steps": 2, "learning_rate": 1e-05}),
    ("Epoch 3:  45%|####5     | 450/1000 [01:23<01:41,  5.40it/s, v_num=0, train_loss=0.123, val_loss=0.456]", {"epoch": 3, "epoch_step": 450, "epoch_steps": 1000, "loss": 0.123, "eval_loss": 0.456}),
    ("Epoch 17/20:   0%|          | 1/1850 [00:02<36:30,  1.18s/it, loss=0.1220, lr=1.67e-05, step=29602]", {"epoch": 17, "step": 29602, "loss": 0.122, "learning_rate": 1.67e-05}),
    ("Epoch 0/9  ━━━━━━━━━━━━━━━ 10/100 0:00:05 • 0:00:10 20.00it/s v_num: 0.000 train_loss: 0.5", {"epoch": 0, "epoch_step": 10, "epoch_steps": 100, "loss": 0.5}),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.720042", {"epoch": 1, "epoch_step": 640, "epoch_steps": 60000, "loss": 1.720042}),
    ("Test set: Average loss: 0.0553, Accuracy: 9820/10000 (98%)", {"eval_loss": 0.0553, "eval_accuracy": 0.98}),
    ("ep: 0, batch: 20, time: 9.17, ntokens: 485.20/513, loss: 10.984375", {"epoch": 0, "epoch_step": 20, "loss": 10.984375}),
    ("INFO - 06/21/21 23:33:58 - 0:02:42 - Finish training epoch 0. loss: 0.0696", {"epoch": 0, "loss": 0.0696}),
    ("Epoch [2/10], Step [300/600], Loss: 0.1234", {"epoch": 2, "step": 300, "loss": 0.1234}),
    ("epoch=1 step=1,200 train_loss=2.0 val_loss=2.5", {"epoch": 1, "step": 1200, "loss": 2.0, "eval_loss": 2.5}),
    ("[Val] Epoch 17 validation loss: 0.3402", {"epoch": 17, "eval_loss": 0.3402}),
    ("Epoch 1 | Train Loss: 2.1000 | Val Loss: 2.0000 | Val Acc: 0.45", {"epoch": 1, "loss": 2.1, "eval_loss": 2.0, "eval_accuracy": 0.45}),
    ("step 3, val loss 4.92 BPC", {"step": 3, "eval_loss": 4.92}),
]  # fmt: skip


def parsed(line):
    for form in formats():
        row = form.parse(line)
        if row:
            return row
    return None


@pytest.mark.parametrize(("line", "expected"), SAMPLES, ids=[sample[0][:40] for sample in SAMPLES])
def test_samples(line, expected):
    row = parsed(line)
    assert row is not None
    for name, value in expected.items():
        assert name in row, row
        assert row[name] == pytest.approx(value, nan_ok=True)


PROSE = [
    "I trained for 3 epochs and the loss was 2.3 at the end, which seemed a bit high to me compared with the loss of the other models",
    "The config {'loss_scale': 0, 'initial_scale_power': 16} is used",
    "loss function: cross entropy",
    "  loss_scale_window ............................... 1000",
    "Loading checkpoint shards: 100%|##########| 4/4 [00:05<00:00,  1.2s/it]",
    "step size 10 and batch size 4",
    'File "/home/user/loss.py", line 12, in step',
]  # fmt: skip


@pytest.mark.parametrize("line", PROSE)
def test_prose_is_no_row(line):
    assert parsed(line) is None


def test_several_dicts_on_a_line():
    form = next(form for form in formats() if type(form).__name__ == "HuggingFaceDict")
    rows = form.rows("{'loss': 1.0, 'epoch': 0.1}{'loss': 0.9, 'epoch': 0.2} {'eval_loss': 2.0, 'eval_runtime': 1.0}")
    assert [[field.name for field in row.fields] for row in rows] == [
        ["loss", "epoch"],
        ["loss", "epoch"],
        ["eval_loss", "eval_runtime"],
    ]


def test_every_format_has_needles_in_its_samples():
    seen = set()
    for line, _ in SAMPLES:
        low = line.lower().encode()
        for form in formats():
            if form.parse(line):
                assert any(needle in low for needle in form.needles), (type(form).__name__, line)
                seen.add(type(form).__name__)
                break
    assert seen == {type(form).__name__ for form in formats()}
