"""What trainers call their numbers, under the names that series have."""

from __future__ import annotations

from functools import lru_cache

from tuneclinic.patterns import pattern

RESERVED = frozenset({"step", "epoch_step", "epoch_steps", "total_steps", "total_epochs", "rank", "bar", "bar_total"})
"""Numbers that place a row rather than measure something. `epoch` does both."""

SAME: dict[str, str] = {
    "loss": "loss", "lm loss": "loss", "train loss": "loss", "train_loss": "loss", "train/loss": "loss", "training loss": "loss",
    "training_loss": "loss", "total_loss": "loss", "total loss": "loss", "train_loss_step": "loss", "loss_step": "loss", "train/loss_step": "loss",
    "actor/pg_loss": "loss", "pg_loss": "loss", "loss/policy_avg": "loss", "global_avg_loss": "loss", "ce_loss": "loss", "llm_loss": "loss", "reduced_llm_loss": "loss", "train loss_step": "loss",
    "average loss": "epoch_loss", "avg loss": "epoch_loss", "avg_loss": "epoch_loss", "train_loss_epoch": "epoch_loss", "loss_epoch": "epoch_loss", "mean loss": "epoch_loss",
    "lr": "learning_rate", "learning rate": "learning_rate", "learning_rate": "learning_rate", "train/lr": "learning_rate", "train/lr(1e-3)": "learning_rate",
    "actor/lr": "learning_rate", "train/learning_rate": "learning_rate", "base_lr": "learning_rate", "lr-adamw": "learning_rate", "curr_lr": "learning_rate",
    "grad norm": "grad_norm", "grad_norm": "grad_norm", "gnorm": "grad_norm", "grad-norm": "grad_norm", "gradient_norm": "grad_norm", "gradient norm": "grad_norm",
    "train/grad_norm": "grad_norm", "actor/grad_norm": "grad_norm", "total_norm": "grad_norm", "norm": "grad_norm", "global_grad_norm": "grad_norm",
    "loss scale": "loss_scale", "loss_scale": "loss_scale", "loss scaler": "loss_scale", "cur_scale": "loss_scale",
    "tps": "tokens_per_second", "tok/sec": "tokens_per_second", "tok/s": "tokens_per_second", "tokens/sec": "tokens_per_second", "tokens/s": "tokens_per_second", "tgs": "tokens_per_second",
    "tokens_per_sec": "tokens_per_second", "tokens_per_second_per_gpu": "tokens_per_second", "step_tokens_per_second": "tokens_per_second", "perf/throughput": "tokens_per_second",
    "train_tokens_per_second": "tokens_per_second", "tokens/train_per_sec_per_gpu": "tokens_per_second",
    "dt": "step_seconds", "time": "step_seconds", "train/time(s)": "step_seconds", "elapsed time per iteration (ms)": "step_seconds", "step_time_sec": "step_seconds", "step_time": "step_seconds",
    "perf/time_per_step": "step_seconds", "iter time (s)": "step_seconds", "time_per_iter": "step_seconds", "sec/step": "step_seconds", "train_speed(s/it)": "step_seconds",
    "memory": "memory_gib", "memory(gib)": "memory_gib", "mem": "memory_gib", "peak_memory_reserved": "memory_gib", "step_peak_memory_reserved_mb": "memory_gib", "max_memory": "memory_gib",
    "perf/max_memory_reserved_gb": "memory_gib", "cuda_max_memory": "memory_gib", "peak_memory": "memory_gib", "memory/max_active (gib)": "memory_gib",
    "mean_token_accuracy": "accuracy", "token_acc": "accuracy", "acc": "accuracy", "accuracy": "accuracy",
    "kl": "kl", "actor/ppo_kl": "kl", "objective/kl": "kl", "critic/rewards/mean": "reward", "average reward": "reward", "reward": "reward", "rewards/mean": "reward",
    "completion_length": "completion_length", "completions/mean_length": "completion_length", "response_length/mean": "completion_length", "actor/entropy": "entropy", "entropy": "entropy",
    "lm loss value": "eval_loss", "validation": "eval_loss", "perplexity": "perplexity", "ppl": "perplexity",
    "global_step": "step", "global step": "step", "iter": "step", "iteration": "step", "step": "step", "steps": "step", "it": "step", "num_updates": "step", "training/global_step": "global_step",
    "batch": "epoch_step", "epoch": "epoch", "ep": "epoch", "training/epoch": "training/epoch", "global_step/max_steps": "step",
}  # fmt: skip
"""Printed name, lower case, to series name; others keep the name they were printed with."""
HELD_OUT = pattern(r"^(?:eval|val|valid|validation|dev|test)(?:[_/ ](?=[a-z])|$)")
"""`val_loss`, `val/loss`, `validation loss`: measured on held-out data. `val-aux/...` and `eval` alone keep their names."""
TRAINED = pattern(r"^train(?:ing)?[_/](?=(?:acc|accuracy|reward|kl|entropy)\b)")


@lru_cache(maxsize=4096)
def metric_name(printed: str) -> str:
    """The series name of one printed name."""
    low = printed.strip().lower()
    known = SAME.get(low)
    if known is not None:
        return known
    held = HELD_OUT.match(low)
    if held and held.end() < len(low):
        rest = low[held.end() :]
        inner = SAME.get(rest, rest)
        return f"eval_{'loss' if inner in {'loss', 'epoch_loss'} else inner}"
    trained = TRAINED.match(low)
    return SAME.get(low[trained.end() :], low) if trained else printed.strip()


def held_out(name: str) -> bool:
    """Whether a series is measured on held-out data."""
    return name.startswith(("eval_", "val-", "val/", "val_", "test_"))
