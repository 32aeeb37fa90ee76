"""Figures over a whole set."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from tuneclinic.arrays import distinct, median, percentile
from tuneclinic.probes.data.row import Row, Table

SAMPLE_CHARS = 1 << 16
"""How much of the answers is compressed and cut into 2-grams: both figures move with the amount of text, so all sets are
measured on at most as much, and zlib's window is half of it."""
ANSWER_CHARS = 2000
OPENING = 20
LATIN_CHARS_PER_TOKEN = 4.0
CJK_CHARS_PER_TOKEN = 1.5
"""Usual for the byte-pair vocabularies of today's models."""
BLOCK_ROWS = 50
BLOCK_RUNS = 3
"""A set in blocks has about one run of rows a source; a shuffled one nearly as many runs as rows."""
BLOCK_LABELS = 50


def statistics(table: Table) -> dict[str, float]:
    """The figures by name; one that does not apply to the layout is left out."""
    rows = table.rows
    if not rows:
        return {"rows": 0.0}
    sizes = np.array(table.sizes)
    figures = {
        "rows": float(len(rows)),
        "row_chars_p50": float(percentile(sizes, 50)),
        "row_chars_p95": float(percentile(sizes, 95)),
        "row_chars_p99": float(percentile(sizes, 99)),
        "row_chars_max": float(sizes.max()),
        "duplicate_share": 1.0 - len(set(table.keys)) / len(rows),
        "tokens_estimated": _tokens(rows),
    }
    if table.answers:
        figures.update(_answers([text for _, text in table.answers]))
    figures.update(_groups(table))
    if table.layout == "tokenised":
        figures.update(_labels(rows))
    return figures


def _answers(answers: list[str]) -> dict[str, float]:
    sizes = np.array([len(text) for text in answers])
    openings = Counter(text.strip()[:OPENING] for text in answers)
    pieces = spread(answers)
    joined = "\n".join(pieces)
    packed = joined.encode("utf-8", "surrogatepass")[:SAMPLE_CHARS]
    figures = {
        "answer_chars_median": float(median(sizes)),
        "answer_chars_max": float(sizes.max()),
        "opening_share": openings.most_common(1)[0][1] / len(answers),
        "answer_unique_share": len({text.strip() for text in answers}) / len(answers),
        "compression_ratio": len(zlib.compress(packed, 6)) / max(1, len(packed)),
    }
    distinct = distinct_2(joined)
    return figures if distinct is None else figures | {"distinct_2": distinct}


def distinct_2(text: str) -> float | None:
    """Different 2-grams over all 2-grams (Li et al. 2016): of words, or of characters where no spaces set words apart."""
    if not text.isascii() and cjk(text) > len(text) // 5:
        codes = np.frombuffer("".join(text.split()).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
        return distinct((codes[:-1] << np.uint64(32)) | codes[1:]) / (len(codes) - 1) if len(codes) > 1 else None
    words = text.lower().split()
    return len(set(pairwise(words))) / (len(words) - 1) if len(words) > 1 else None


def spread(answers: list[str]) -> list[str]:
    """Answers from all over the set, of `SAMPLE_CHARS` characters together at most."""
    total = sum(min(len(text), ANSWER_CHARS) for text in answers)
    step = max(1, -(-total // SAMPLE_CHARS))
    return [text[:ANSWER_CHARS] for text in answers[::step]]


def cjk(text: str) -> int:
    """About how many characters of `text` take three bytes in UTF-8 (Chinese, Japanese, Korean)."""
    if text.isascii():
        return 0
    return (len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2


def _tokens(rows: Iterable[Row]) -> float:
    tokens = 0.0
    for row in rows:
        if row.input_ids is not None:
            tokens += len(row.input_ids)
            continue
        for _, text in row.messages:
            wide = cjk(text)
            tokens += wide / CJK_CHARS_PER_TOKEN + (len(text) - wide) / LATIN_CHARS_PER_TOKEN
    return round(tokens)


def _groups(table: Table) -> dict[str, float]:
    """Whether rows of a source column, or of a small set of labels as answers, stand in blocks."""
    groups = [row.group for row in table.rows if row.group is not None]
    figures = {"sources": float(len(set(groups)))} if groups else {}
    if len(groups) < len(table.rows):
        groups = [text.strip() for _, text in table.answers if len(text) <= BLOCK_LABELS]
    kinds = Counter(groups)
    if len(groups) < max(BLOCK_ROWS, 0.9 * len(table.rows)) or not 2 <= len(kinds) <= BLOCK_LABELS:
        return figures
    runs = 1 + sum(one != two for one, two in pairwise(groups))
    shuffled = 1 + len(groups) * (1.0 - sum((count / len(groups)) ** 2 for count in kinds.values()))
    figures["source_blocks"] = float(runs <= BLOCK_RUNS * len(kinds) and shuffled >= BLOCK_RUNS * runs)
    return figures


def _labels(rows: list[Row]) -> dict[str, float]:
    """Of tokenised rows: how many tokens are trained, and whether labels stand as the inputs do or one place further on."""
    labelled = [row for row in rows if row.labels and row.input_ids and len(row.labels) == len(row.input_ids)]
    trained = sum(label >= 0 for row in labelled for label in row.labels or ())
    if not labelled or not trained:
        return {}
    same = sum(label == token for row in labelled for label, token in zip(row.labels or (), row.input_ids or (), strict=True))
    moved = sum(
        label == token for row in labelled for label, token in zip(row.labels or (), (row.input_ids or ())[1:], strict=False)
    )
    total = sum(len(row.labels or ()) for row in labelled)
    return {"trained_share": trained / total, "labels_equal_share": same / trained, "labels_shifted_share": moved / trained}
