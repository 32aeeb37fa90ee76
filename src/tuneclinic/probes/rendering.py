"""Renders the kept rows of a data set with the run's own chat template, and checks what comes out."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from tuneclinic.evidence import Evidence
from tuneclinic.probes.data.rendered import Faults, examine, locate, made
from tuneclinic.probes.data.token_rows import examine_tokens
from tuneclinic.sections import Data, RowSet, Sample, Tokenizer
from tuneclinic.values import dataclass

if TYPE_CHECKING:
    from tuneclinic.probes.data.sandbox import Renderer

SECONDS = 0.8
"""How much CPU time all rows of a run may take together; 256 rows of an ordinary template take a tenth of it."""
ROW_CHARS = 1 << 20
"""A row beyond a million characters is not rendered: with its marks it could pass the bound on what a template may make."""
WORK_CHARS = 1 << 26
"""Turns times characters beyond which a row is not rendered: every turn is looked for in the whole text."""


@dataclass
class Work:
    """What rendering made of the rows."""

    texts: dict[int, str] = field(default_factory=dict)
    faults: dict[str, Faults] = field(default_factory=lambda: defaultdict(Faults))
    refused: int = 0
    system_refused: int = 0
    system_lost: float = 0.0
    failed: int = 0
    stopped: int = 0


def render(evidence: Evidence) -> Evidence:
    """`evidence` with `Sample.rendered` filled and the checks made that need rendered text or the tokenizer's ids.

    Only the kept samples are looked at, so the row sets added here number rows among those. `Data.statistics` gains
    `rendered_rows`, and where they are not zero `render_refused` (rows that the template refused), `render_system_refused`
    and `render_system_lost` (rows whose system text it refused or dropped), `render_failed` and `render_stopped`.
    """
    data, tokenizer = evidence.data, evidence.tokenizer
    if data is None or not data.samples:
        return evidence
    longest = int(data.statistics.get("row_chars_max", 0))
    for source in dict.fromkeys(sample.source for sample in data.samples if sample.input_ids):
        rows = [sample for sample in data.samples if sample.source == source]
        faults, names = examine_tokens(rows, tokenizer, evidence.model, longest)
        data = _with(data, {source: faults}, names)
    if tokenizer is not None:
        data = _double_bos(data, tokenizer)
        if tokenizer.template:
            data = _rendered(data, tokenizer)
    return evidence if data is evidence.data else replace(evidence, data=data)


def _rendered(data: Data, tokenizer: Tokenizer) -> Data:
    spoken = [index for index, sample in enumerate(data.samples) if _spoken(sample)]
    if not spoken or not tokenizer.template:
        return data
    from jinja2 import TemplateError  # noqa: PLC0415 - jinja2 is loaded only where there is something to render

    from tuneclinic.probes.data.bounds import Stopped  # noqa: PLC0415 - as above
    from tuneclinic.probes.data.sandbox import renderer  # noqa: PLC0415 - as above

    tokens = (
        ("bos_token", tokenizer.bos),
        ("eos_token", tokenizer.eos),
        ("pad_token", tokenizer.pad),
        ("unk_token", tokenizer.unk),
    )
    work = Work()
    try:
        _work(data, spoken, renderer(tokenizer.template, tokens), tokenizer, work)
    except Stopped:
        work.stopped += 1
    except TemplateError:
        work.failed += len(spoken)
    if work.stopped:
        work.faults.clear()
        work.texts.clear()
    done = [data.samples[index] for index in work.texts]
    names = set(made(done, tokenizer))
    if work.refused:
        names.add("roles-disordered")
    samples = tuple(replace(s, rendered=work.texts[i]) if i in work.texts else s for i, s in enumerate(data.samples))
    figures = {
        "render_refused": float(work.refused),
        "render_system_refused": float(work.system_refused),
        "render_system_lost": work.system_lost,
        "render_failed": float(work.failed),
        "render_stopped": float(work.stopped),
    }
    figures = {"rendered_rows": float(len(done))} | {name: value for name, value in figures.items() if value}
    return _with(replace(data, samples=samples, statistics={**data.statistics, **figures}), work.faults, names)


def _work(data: Data, spoken: Iterable[int], rendering: Renderer, tokenizer: Tokenizer, work: Work) -> None:
    from tuneclinic.probes.data.bounds import Refused, Stopped  # noqa: PLC0415 - loaded by the caller

    end = time.thread_time() + SECONDS
    for index in spoken:
        if time.thread_time() > end:
            break
        sample = data.samples[index]
        try:
            text = _text(sample, rendering)
        except Refused as refusal:
            _refused(sample, str(refusal), rendering, work)
            continue
        except Stopped:
            raise
        except Exception as error:
            if type(error).__name__ == "SecurityError":
                raise
            work.failed += 1
            continue
        work.texts[index] = text
        work.system_lost += examine(sample, text, tokenizer, work.faults[sample.source])


def _text(sample: Sample, rendering: Callable[[Sequence[Mapping[str, Any]]], str]) -> str:
    """The row as the template writes it; templates that only know content in parts get parts."""
    plain = [{"role": role, "content": text} for role, text in sample.messages]
    text = rendering(plain)
    users = [words for role, words in sample.messages if role == "user" and words.strip()]
    if users and all(locate(words, text) is None for words in users):
        parts = [{"role": role, "content": [{"type": "text", "text": words}]} for role, words in sample.messages]
        try:
            other = rendering(parts)
        except Exception:  # noqa: BLE001 - the plain form rendered; the other was only an attempt
            return text
        if all(locate(words, other) is not None for words in users):
            return other
    return text


def _refused(sample: Sample, reason: str, rendering: Callable[[Sequence[Mapping[str, Any]]], str], work: Work) -> None:
    """A row that the template will not take: its roles, unless it was only the system text or a tool's turn."""
    if any(role not in ("system", "user", "assistant") for role, _ in sample.messages):
        work.failed += 1
        return
    if any(role == "system" for role, _ in sample.messages):
        rest = [{"role": role, "content": text} for role, text in sample.messages if role != "system"]
        try:
            rendering(rest)
        except Exception:  # noqa: BLE001, S110 - refused without its system text as well: the roles are the reason
            pass
        else:
            work.system_refused += 1
            return
    work.refused += 1
    work.faults[sample.source].add("roles-disordered", sample, f"{reason} ({'-'.join(role for role, _ in sample.messages)})")


def _spoken(sample: Sample) -> bool:
    messages = sample.messages
    if not messages or all(role == "text" for role, _ in messages):
        return False
    size = sum(len(text) for _, text in messages)
    return size <= ROW_CHARS and len(messages) * size <= WORK_CHARS


def _double_bos(data: Data, tokenizer: Tokenizer) -> Data:
    """Plain text that opens with the start token, for a tokenizer known to add one."""
    if data.layout != "text" or not tokenizer.bos or not tokenizer.adds_bos:
        return data
    faults: dict[str, Faults] = defaultdict(Faults)
    for sample in data.samples:
        if sample.messages and sample.messages[0][1].startswith(tokenizer.bos):
            faults[sample.source].add("double-bos", sample, sample.messages[0][1])
    return _with(data, faults, {"double-bos"})


def _with(data: Data, faults: Mapping[str, Faults], names: Iterable[str]) -> Data:
    """`data` with row sets and names of checks added."""
    sets = [
        RowSet(name, tuple(rows), source or (data.sources[0] if data.sources else ""), example)
        for source, found in faults.items()
        for name, (rows, example) in found.found.items()
    ]
    return replace(data, defects=(*data.defects, *sets), checked=data.checked | frozenset(names))
