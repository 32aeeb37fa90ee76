"""Last resort: a step or an epoch, and a loss beside it, as `key: value` or `key=value`.

Careful with prose: a row is made of pairs, a sentence of words.
"""

from __future__ import annotations

import re
from typing import ClassVar

from tuneclinic.probes.lines import NUMBER, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

LOSS = Lazy(
    rf"(?P<name>\b(?:(?:val|valid|validation|eval|test|dev|train|training|avg|average|mean|total|lm|ce|running|smooth|batch)[_/ ]{{1,2}}){{0,2}}[Ll]oss)(?P<sep>\s{{0,2}}[:=]\s{{0,4}}|\s{{1,4}}(?:is\s)?)(?P<value>{NUMBER})",
    re.IGNORECASE,
)
PLACE = Lazy(
    r"(?<![\w.])(?P<name>global[_ ]step|num_updates|steps?|iter(?:ation)?s?|batch|epochs?|ep)\b\]?\s{0,2}[:=#]?\s{0,4}[\[(]?\s{0,6}(?P<value>\d{1,3}(?:,\d{3}){1,3}|\d{1,12}(?:\.\d{1,6})?)(?![\d.]*[%\w])(?:\s{0,2}(?:/|of)\s{0,6}(?P<of>\d{1,12}))?",
    re.IGNORECASE,
)
PAIR = Lazy(
    rf"(?<![\w/.])(?P<name>(?:(?:[Vv]al|[Vv]alid|[Vv]alidation|[Tt]est|[Ee]val|[Dd]ev|[Tt]rain)[ _/])?[A-Za-z][\w/.\-]{{0,40}})\s{{0,2}}[:=]\s{{0,4}}(?P<value>{NUMBER})(?![:/])"
)
RATE = Lazy(rf"(?<![\w/.])(?P<name>lr|learning[ _-]rate)\s{{1,4}}(?P<value>{NUMBER})", re.IGNORECASE)
"""A rate printed as the loss is, with a blank alone between name and number."""
HELD_OUT = Lazy(r"\b(?:val|valid|validation|eval|evaluation|test|dev)\b", re.IGNORECASE)
WORD = Lazy(r"[A-Za-z]{3,}")
MOST_WORDS = 9
"""Words of three letters and more outside of the pairs. Logger prefixes with `Finish training epoch` have 4 to 7, sentences about losses more."""
LONGEST = 600
"""Characters. The longest row of a hand-written loop in the corpus has 140."""
SINGULAR = {
    "steps": "step",
    "iters": "iter",
    "iterations": "iteration",
    "epochs": "epoch",
    "num_updates": "step",
    "global step": "step",
}


class Generic(LineFormat):
    """Rows of hand-written loops."""

    needles: ClassVar[tuple[bytes, ...]] = (b"loss",)
    last_resort: ClassVar[bool] = True

    def fields(self, line: str) -> list[Field] | None:
        """The losses, the places and every pair of the line, unless it reads like a sentence."""
        if len(line) > LONGEST:
            return None
        losses = list(LOSS.finditer(line))
        places = list(PLACE.finditer(line))
        if not losses or not places:
            return None
        held = bool(HELD_OUT.search(line, 0, losses[0].start("name")))
        fields = [Field(_loss_name(loss["name"], held and len(losses) == 1), *loss.span("value")) for loss in losses]
        taken = {field.start for field in fields}
        for place in places:
            fields += _place(place)
        taken |= {field.start for field in fields}
        fields += [Field(pair["name"], *pair.span("value")) for pair in PAIR.finditer(line) if pair.start("value") not in taken]
        fields += [Field("lr", *rate.span("value")) for rate in RATE.finditer(line)]
        words = len(WORD.findall(line)) - len(WORD.findall(" ".join(field.name for field in fields)))
        return fields if words <= MOST_WORDS else None


def _loss_name(printed: str, held: bool) -> str:
    low = " ".join(re.split(r"[_/ ]+", printed.lower()))
    if held and not HELD_OUT.match(low):
        return "eval_loss"
    if low.startswith(("avg", "average", "mean")):
        return "average loss"
    return low if HELD_OUT.match(low) else "loss"


def _place(place: re.Match[str]) -> list[Field]:
    low = re.sub(r"\s", " ", place["name"].lower())
    name = SINGULAR.get(low, low)
    fields = [Field(name, *place.span("value"))]
    if place["of"]:
        of = {"epoch": "total_epochs", "ep": "total_epochs", "batch": "epoch_steps"}.get(name, "total_steps")
        fields.append(Field(of, *place.span("of")))
    return fields
