"""What the cases of this folder ask of outputs, scores and weight files, each question once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from tuneclinic.casebook.learning._facts import say
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Output, Score, WeightFile
from tuneclinic.words import Text

NOISE = 0.03
"""Relative change below which a score is unchanged: the standard error of 1,000 questions answered 60 % right is 2.6 %."""
MERGED = r"(?i)merge|quanti[sz]|awq|gptq|gguf|int[48]|[48][-_ ]?bit|nf4|fp8|q[2-8]_[k01]|合并|量化"
"""Names by which a table or a file marks a merged or quantised variant."""
MOST = 400
"""Answers looked at: enough for a share within five percentage points."""
ENOUGH = 4
"""Answers from which "all of them" is no accident."""
LONG_ENOUGH = 20
"""Characters of an answer that two models do not write alike by chance."""
LOOP_UNIT = 200
"""Longest repeated unit in characters: a long sentence."""
LOOP_TIMES = 4
"""Times a unit follows itself: refrains repeat up to three times."""
LOOP_CHARACTERS = 40
"""Characters a loop covers at least."""
PROJECTOR = r"(?i)mm_projector|multi_modal_projector|\bvisual\.merger|\bmlp1\.|\bconnector\.|\baligner\.|resampler|embed_vision"
"""Parameter names of the part between vision tower and language model: LLaVA, Qwen-VL, InternVL, Idefics, Janus, MiniCPM, Gemma 3n."""


class Later:
    """A regular expression that is compiled when it is first used: a diagnosis loads every case and asks few of them for a match."""

    __slots__ = ("flags", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = flags

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.search`."""
        return re.search(self.pattern, text, self.flags)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.match`."""
        return re.match(self.pattern, text, self.flags)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.fullmatch`."""
        return re.fullmatch(self.pattern, text, self.flags)


def answers(seen: Evidence) -> tuple[Output, ...]:
    """The generated outputs that were read, the first `MOST`."""
    return seen.outputs.items[:MOST] if seen.outputs is not None else ()


def loops(text: str) -> bool:
    """Whether a text repeats one unit to its end."""
    tail = text.rstrip()[-LOOP_UNIT * (LOOP_TIMES + 1) :]
    for length in range(1, min(LOOP_UNIT, len(tail) // LOOP_TIMES) + 1):
        unit = tail[-length:]
        if not any(character.isalpha() for character in unit):
            continue
        times = LOOP_TIMES if length * LOOP_TIMES >= LOOP_CHARACTERS else LOOP_CHARACTERS // length + 1
        if length * times <= len(tail) and tail.endswith(unit * times):
            return True
    return False


def broken(text: str) -> bool:
    """Whether an answer is empty, a run of one mark, or full of replacement characters."""
    bare = text.strip()
    return not bare or (len(bare) >= 8 and len(set(bare)) == 1) or bare.count("\ufffd") * 10 > len(bare)


def about(output: Output, en: str, zh: str, weight: float = 0.0) -> Exhibit:
    """A statement on outputs, placed at one of them."""
    return Exhibit(Text(en, zh), output.where, output.source, weight=weight, section="outputs")


def broken_answers(seen: Evidence, weight: float) -> tuple[Exhibit, ...]:
    """An exhibit that half of the answers or more are empty or garbled."""
    held = answers(seen)
    bad = [output for output in held if broken(output.text)]
    if len(bad) < 2 or len(bad) * 2 < len(held):
        return ()
    text = f"{len(bad)} of {len(held)} answers are empty or garbled", f"{len(held)} 个回答里有 {len(bad)} 个为空或是乱码"
    return (about(bad[0], *text, weight),)


def same_as_base(seen: Evidence) -> tuple[Exhibit, ...]:
    """For (or, negative, against) an adapter without effect: the answers equal the base model's; empty where none are paired."""
    pairs = [output for output in answers(seen) if output.base is not None and len(output.text.strip()) >= LONG_ENOUGH]
    same = [output for output in pairs if output.base is not None and output.base.strip() == output.text.strip()]
    if len(pairs) < ENOUGH:
        return ()
    en = f"{len(same)} of {len(pairs)} answers equal the base model's letter for letter"
    zh = f"{len(pairs)} 个回答里有 {len(same)} 个和 base 模型一字不差"
    if len(same) == len(pairs):
        return (about(same[0], en, zh, 9.0),)
    return (about(pairs[0], en, zh, -8.0),) if len(same) * 2 < len(pairs) else ()


def worse_scores(seen: Evidence, weight: float) -> tuple[Exhibit, ...]:
    """Scores of the task itself that the tuned model lost against its base."""
    lost = [score for score in _scores(seen) if score.domain and (_change(score.base, score.tuned, score) or 0.0) < -NOISE]
    return tuple(_told(score, score.base, score.tuned, weight if number == 0 else 0.0) for number, score in enumerate(lost[:2]))


def merged_scores(seen: Evidence, weight: float) -> tuple[Exhibit, ...]:
    """Scores of a merged or quantised variant beside the plain one: for where they fell, against where none did; else empty."""
    marked = [score for score in _scores(seen) if re.search(MERGED, f"{score.task} {score.metric} {score.where}")]
    plain = {(_bare(score.task), score.metric): score for score in _scores(seen) if score not in marked}
    pairs = [(plain[key], score) for score in marked if (key := (_bare(score.task), score.metric)) in plain]
    pairs = [(a, b) for a, b in pairs if _change(a.tuned, b.tuned, a) is not None]
    fell = [(a, b) for a, b in pairs if (_change(a.tuned, b.tuned, a) or 0.0) < -NOISE]
    if fell:
        return tuple(_told(b, a.tuned, b.tuned, weight if n == 0 else 0.0) for n, (a, b) in enumerate(fell[:2]))
    return tuple(_told(b, a.tuned, b.tuned, -weight) for a, b in pairs[:1])


def _scores(seen: Evidence) -> tuple[Score, ...]:
    return seen.scores.items if seen.scores is not None else ()


def _bare(task: str) -> str:
    return re.sub(r"\W+", "", re.sub(r"(?:\(.*?\)|d\b|zed\b|zation\b)", "", re.sub(MERGED, "", task))).lower()


def _change(before: float | None, after: float | None, score: Score) -> float | None:
    if before is None or after is None or not math.isfinite(before) or not math.isfinite(after) or before == 0:
        return None
    moved = (after - before) / abs(before)
    return -moved if score.lower else moved


def _told(score: Score, before: Any, after: Any, weight: float) -> Exhibit:
    what = f"{score.task} {score.metric}".strip()
    text = Text(f"{what}: {before:.4g} → {after:.4g}", f"{what}：{before:.4g} → {after:.4g}")
    return Exhibit(text, score.where, score.where.split(":")[0].split(" row")[0], weight=weight, section="scores")


def sampling(seen: Evidence, name: str) -> tuple[float, Exhibit] | None:
    """A sampling value as served, else as the generation configuration or the script sets it; with its exhibit."""
    serving = seen.serving
    if serving is not None and name in serving.sampling:
        value = float(serving.sampling[name])
        where = serving.places.get(name, serving.places.get("sampling", ""))
        shown = f"{name} = {value:g}"
        return value, say(f"served with {shown}", f"推理时 {shown}", section="serving", where=where)
    value_ = seen.settings.number(name) if seen.settings is not None else None
    if seen.settings is None or value_ is None or not math.isfinite(value_):
        return None
    setting = seen.settings.values[name]
    return value_, Exhibit(setting.quote, setting.where, setting.source, section="settings")


def adapters(seen: Evidence) -> list[WeightFile]:
    """Adapter files, the one of the latest step first."""
    files = [file for file in seen.weights.files if file.adapter and not file.unread] if seen.weights is not None else []
    return sorted(files, key=lambda file: -(file.step if file.step is not None else 1 << 40))


def whole_models(seen: Evidence) -> list[tuple[str, tuple[str, ...]]]:
    """(source, tensor names) of each folder whose whole list of tensors was read: by its index, or one single file."""
    folders: dict[str, list[WeightFile]] = {}
    for file in seen.weights.files if seen.weights is not None else ():
        if not file.adapter and not file.unread and file.names and _is_model(file):
            folders.setdefault(folder(file.source), []).append(file)
    found = []
    for files in folders.values():
        index = next((file for file in files if file.form == "safetensors-index"), None)
        single = files[0] if len(files) == 1 and "-of-" not in files[0].source else None
        whole = index or single
        if whole is not None and whole.tensors <= len(whole.names):
            found.append((whole.source, whole.names))
    return found


def _is_model(file: WeightFile) -> bool:
    """Whether a file holds a language model's body, and not an optimizer's state, a LoRA or a part."""
    return any(re.search(r"\blayers?\.\d+\.|\bh\.\d+\.", name) for name in file.names)


def folder(source: str) -> str:
    """The folder of a file as the evidence names it; "" for the run's own."""
    return source.rpartition("/")[0]


def texts(seen: Evidence) -> Iterator[tuple[str, str, str, str]]:
    """(text, where, source, section) of every error and kept log line."""
    for error in seen.crash.errors if seen.crash is not None else ():
        yield f"{error.kind}: {error.message}", error.where, error.source, "crash"
    for line in seen.log.lines if seen.log is not None else ():
        yield line.text, line.where, line.source, "log"
