"""What trainers call the quantities they log, under the names of `Metrics`."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from tuneclinic.patterns import pattern

STEP_NAMES: tuple[str, ...] = (
    "step",
    "global_step",
    "global_step/max_steps",
    "train/global_step",
    "trainer/global_step",
    "current_steps",
    "iter",
    "iteration",
    "iters",
    "training/global_step",
    "global_steps",
    "steps",
    "train_step",
    "train/step",
    "_step",
)
"""Columns that hold the step, the surest first: Trainer, ms-swift, W&B, Lightning, LLaMA-Factory, mmengine, nanoGPT, verl."""

TOTAL_NAMES: tuple[str, ...] = ("total_steps", "max_steps", "max_iters", "total_iters")
"""Columns that hold the planned number of steps."""

NOT_METRICS = frozenset({
    "percentage", "_timestamp", "_runtime", "timestamp", "wall_time", "wall time", "time_stamp", "is_nan", "run_uuid", "key",
})  # fmt: skip
"""Columns that only locate a row."""

SUMMARY_NAMES = frozenset({
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second", "total_flos",
})  # fmt: skip
"""What a Trainer reports once, at the end of training."""

_ALIASES: dict[str, tuple[str, ...]] = {
    "loss": (
        "loss",
        "train_loss_step",
        "train_loss",
        "train_step_loss",
        "training_loss",
        "loss_step",
        "step_loss",
        "lm_loss",
        "train_lm_loss",
        "loss_metrics_global_avg_loss",
        "train_samples_train_loss",
        "total_loss",
        "actor_pg_loss",
        "train_loss_epoch",
        "loss_epoch",
    ),
    "eval_loss": (
        "eval_loss",
        "eval_loss_epoch",
        "eval_epoch_loss",
        "lm_loss_validation",
        "validation_loss",
        "eval_lm_loss",
        "eval_loss_step",
    ),
    "grad_norm": (
        "grad_norm",
        "gradient_norm",
        "global_grad_norm",
        "total_grad_norm",
        "gradnorm",
        "grad_norm_step",
        "actor_grad_norm",
    ),
    "learning_rate": ("learning_rate", "lr", "train_lr", "train_samples_lr", "base_lr", "actor_lr", "lr_default"),
    "epoch": ("epoch", "epochs"),
    "loss_scale": ("loss_scale", "train_samples_loss_scale", "lossscale"),
    "tokens_per_second": (
        "tokens_per_second",
        "tokens_per_second_per_gpu",
        "tokens_per_sec",
        "throughput(tps)",
        "tok_per_sec",
        "tgs",
        "perf_throughput",
        "tokens_train_per_sec_per_gpu",
    ),
    "step_seconds": ("step_seconds", "train_speed(s_it)", "train_speed(iter_s)", "timing_s_step", "step_time", "time_per_step"),
    "memory_gib": (
        "memory_gib",
        "memory(gib)",
        "memory_max_active(gib)",
        "memory_max_active_(gib)",
        "peak_memory_active",
        "perf_max_memory_allocated_gb",
    ),
    "perplexity": ("perplexity", "ppl"),
    "eval_perplexity": ("eval_perplexity", "eval_ppl"),
    "rewards/chosen": ("rewards_chosen",),
    "rewards/rejected": ("rewards_rejected",),
    "rewards/margins": ("rewards_margins",),
    "rewards/accuracies": ("rewards_accuracies",),
    "logps/chosen": ("logps_chosen",),
    "logps/rejected": ("logps_rejected",),
    "reward": ("reward", "objective_rlhf_reward", "critic_rewards_mean", "critic_score_mean"),
    "kl": ("kl", "objective_kl", "actor_kl_loss", "actor_ppo_kl"),
    "completion_length": ("completion_length", "completions_mean_length", "response_length_mean"),
    "entropy": ("entropy", "policy_entropy_avg", "objective_entropy", "actor_entropy", "actor_entropy_loss"),
    "accuracy": ("accuracy", "mean_token_accuracy", "token_acc", "acc", "train_acc", "train_accuracy"),
    "eval_accuracy": ("eval_accuracy", "eval_mean_token_accuracy", "eval_token_acc", "eval_acc"),
}
"""Our name → what logs call it, in normal form, the one to prefer first where a log has several."""

RECIPROCALS = frozenset({"train_speed(iter_s)"})
"""Steps per second, turned into seconds per step."""

_TABLE: dict[str, tuple[str, int]] = {
    alias: (name, rank) for name, aliases in _ALIASES.items() for rank, alias in enumerate(aliases)
}
_SEPARATORS = pattern(r"[\s/.\-:]+")
_EVALUATION = pattern(r"^(?:val|valid|validation|dev|eval)_(?=.)")
_RATE_PER_GROUP = pattern(r"^lr_[a-z]*adam\w*$|^lr_(?:group|pg)?_?0$|^learning_rate_(?:group_?)?0$")


@lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """A name in normal form: lower case, one `_` for any separator, evaluation under `eval_`."""
    lower = _SEPARATORS.sub("_", name.strip().lower())
    return _EVALUATION.sub("eval_", lower)


@lru_cache(maxsize=4096)
def meaning(name: str) -> tuple[str, int]:
    """Our name for a logged quantity, and its rank among the names that mean the same (0 is the surest).

    A quantity that no series of ours stands for keeps its name, without the `train/` or with the `eval_` that the
    Trainer's TensorBoard and W&B callbacks turn into a folder.
    """
    plain = normal(name)
    for form in (plain, plain.removeprefix("train_"), plain.removeprefix("training_")):
        if form in _TABLE:
            return _TABLE[form]
    if _RATE_PER_GROUP.match(plain):
        return "learning_rate", 90
    if name.startswith("train/"):
        return name.removeprefix("train/"), 0
    if name.startswith("eval/"):
        return f"eval_{name.removeprefix('eval/')}", 0
    return name, 0


@lru_cache(maxsize=4096)
def summary_name(name: str) -> str:
    """The name of an end-of-run number that a logger wrote like a series; "" for any other."""
    plain = normal(name)
    if plain.startswith("summary_"):
        return plain.removeprefix("summary_")
    plain = plain.removeprefix("train_") if plain.startswith(("train_train_", "train_total_")) else plain
    return plain if plain in SUMMARY_NAMES or (plain == "train_loss" and normal(name) == "train_train_loss") else ""


_PREFERENCE = frozenset({"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"})
_GROUP_REWARD = frozenset({
    "reward_std", "completion_length", "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio", "clip_ratio",
})  # fmt: skip
_PPO = ("ppo/", "objective/", "policy/approxkl", "policy/clipfrac", "val/clipfrac", "critic/vf_loss", "actor/pg_clipfrac")
_REWARD_MODEL = frozenset({"min_reward", "max_reward", "mean_reward"})
_CAUSAL = frozenset({"mean_token_accuracy", "token_acc", "eval_token_acc", "eval_mean_token_accuracy", "perplexity", "eval_perplexity", "lm loss", "num_input_tokens_seen"})  # fmt: skip
_CLASSES = frozenset({"eval_f1", "eval_matthews_correlation", "eval_precision", "eval_recall", "eval_roc_auc"})


def kind_of(raw: Collection[str]) -> str:
    """What the loss is of, from the names that a log uses; "" where they do not tell.

    The names are those of TRL's DPO, KTO, GRPO, PPO and reward trainers, the Trainer's classification metrics and the token
    accuracies of TRL and ms-swift.
    """
    raw_names = {name.strip().lower() for name in raw}
    names = raw_names | {meaning(name)[0] for name in raw_names} | {name.removeprefix("train/") for name in raw_names}
    if names & _PREFERENCE or "eval_rewards/chosen" in names:
        paired = "rewards/accuracies" in names or "eval_rewards/accuracies" in names
        return "kto" if "kl" in names and not paired else "dpo"
    if "reward" in names and names & _GROUP_REWARD:
        return "grpo"
    if any(name.startswith(_PPO) for name in names):
        return "ppo"
    if len(names & _REWARD_MODEL) >= 2:
        return "reward"
    if names & _CAUSAL or any("perplexity" in name for name in names):
        return "causal-lm"
    return "classification" if names & _CLASSES else ""
