"""What all readers of checkpoint files share."""

from __future__ import annotations

import re

from tuneclinic.patterns import pattern

STEP = pattern(r"(?:^|/)(?:checkpoint|global_step|step|iter)[-_]?0*(\d{1,12})(?:/|$|\.)", re.IGNORECASE)
"""How transformers, DeepSpeed, torchtune and Megatron name a checkpoint's folder."""


def step_of(name: str) -> int | None:
    """The checkpoint's step where the folder or the file name tells it."""
    found = STEP.findall(name.replace("\\", "/"))
    return int(found[-1]) if found else None
