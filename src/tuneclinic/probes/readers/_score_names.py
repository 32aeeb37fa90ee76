"""What names of tasks and metrics say: which way is better, and whether a task is the run's own domain."""

from __future__ import annotations

from tuneclinic.patterns import pattern

_LOWER = frozenset({"ppl", "perplexity", "loss", "wer", "cer", "ter", "mae", "mse", "rmse", "fid", "error", "errors", "err", "latency", "toxicity", "hallucination", "hallucinations"})  # fmt: skip
_LOWER_ZH = ("困惑度", "错误率", "误差")
_DOMAIN_ZH = ("领域", "业务", "目标任务")
_OTHER = frozenset({"out", "open", "cross", "general", "other", "off", "ood"})
_OTHER_ZH = ("通用领域", "领域外")
_WORD = pattern(r"[a-z]+")


def is_lower_better(name: str) -> bool:
    """Whether a smaller value of this metric is the better one: errors, losses, perplexities."""
    return not _LOWER.isdisjoint(_WORD.findall(name[:200].lower())) or any(word in name for word in _LOWER_ZH)


def is_domain(name: str) -> bool:
    """Whether a task's name or kind calls it the run's own domain."""
    words = _WORD.findall(name[:200].lower())
    if not _OTHER.isdisjoint(words) or any(word in name for word in _OTHER_ZH):
        return False
    return "domain" in words or "indomain" in words or any(word in name for word in _DOMAIN_ZH)
