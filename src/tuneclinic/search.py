"""Finds the card a person means: by id, by free words in English or Chinese, by a pasted log line or error.

Words are weighed by inverse document frequency (Spärck Jones 1972) and compared phrase by phrase with cosine similarity, so that
one short phrase of a card can match a short question whole. Chinese needs no segmenter: it is indexed by pairs of characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from tuneclinic.case import Case
from tuneclinic.patterns import pattern
from tuneclinic.registry import found
from tuneclinic.sections import CrashError
from tuneclinic.signature import likely
from tuneclinic.symptom import Symptom
from tuneclinic.symptoms._crash import end_of
from tuneclinic.symptoms._language import LONGEST, words_of
from tuneclinic.values import dataclass
from tuneclinic.words import LANGUAGES, Language, Text

Match: TypeAlias = Literal["id", "near-id", "signature", "words"]

NEAR_ID = 0.8
"""Similarity (Ratcliff and Obershelp) from which a query is a misspelt id: one letter in five may be wrong."""
NEAR_WORD = 0.82
"""Similarity from which an unknown word is read as a known one."""
PHRASE_SHARE = 0.6
"""How much the best phrase counts against the words of the whole card. Set with `CONCEPT_FAVOUR` on 250 phrases of three sets, of
which 243 to 247 are found anywhere between 0.5 and 0.7 (and favours of 2.0 to 2.4)."""
SYMPTOM_FAVOUR = 1.7
"""People describe what they see: of a symptom and a case that match alike, the symptom stands first …"""
NEARLY_THE_SAME = 0.9
"""… unless the question is all but one of the case's own phrases."""
LINE_BONUS = 0.6
"""What the kind of a pasted error or metric line adds to the symptom that it shows: enough to outweigh the words of its message,
for an exception about images is still an exception."""
CONCEPT_FAVOUR = 2.4
"""How much more a shared meaning counts than a shared word; see `PHRASE_SHARE`."""
UNKNOWN = 1.0
"""Weight of a word that no card has, less than that of a known one: it says nothing for or against any card."""
LEAST = 0.12
"""Score below which nothing is offered: one common word out of many."""
DESCRIBED = 0.5
"""How much a word counts that stands in a card's longer description only, against one of its phrases or titles."""

_ERROR = pattern(r"(?:^|[\s:\]])((?:[a-z_]+\.)*[A-Za-z]*(?:Error|Exception|Interrupt))\b:?\s*(.*)")
_NAN_LINE = pattern(r"(?:loss|grad_norm|gradient norm)['\"]?\s*[:= ]\s*['\"]?(?:nan|inf)\b")
_EPOCH = pattern(r"(?:epoch)['\"]?\s*[:=]\s*['\"]?([0-9.]+)")
_FIRST_EPOCH = 0.05
"""Share of an epoch that still reads as the beginning of a run in a pasted line."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One card that was found. `score` orders hits of one query; `match` says how it was found."""

    kind: Literal["symptom", "case"]
    id: str
    title: Text
    score: float
    match: Match


class _Card(NamedTuple):
    """One card as it is searched: the words of its phrases and titles, those of its description, and each phrase on its own."""

    kind: Literal["symptom", "case"]
    id: str
    title: Text
    typed: frozenset[str]
    described: frozenset[str]
    phrases: tuple[frozenset[str], ...]
    signatures: tuple[str, ...]


class _Index(NamedTuple):
    """All cards, and how much each of their words counts: its inverse document frequency, meanings above plain words."""

    cards: tuple[_Card, ...]
    weights: dict[str, float]

    def total(self, words: Iterable[str]) -> float:
        """The weights of `words` together."""
        return sum(self.weights.get(word, UNKNOWN) for word in words)

    def square(self, words: Iterable[str]) -> float:
        """The squared weights of `words` together."""
        return sum(self.weights.get(word, UNKNOWN) ** 2 for word in words)


def find(text: str, language: Language | None = None, limit: int = 5) -> list[Hit]:
    """The cards that `text` means, best first: an id, free words, or a pasted log line.

    Args:
        text: what a person typed or pasted, of any length.
        language: search only the titles and descriptions in this language; both where it is None.
        limit: the most hits to return.

    Returns:
        Hits with falling scores; empty where nothing is near.
    """
    index = _index(language)
    query = text.strip()[-LONGEST:]
    named = _by_id(index, query)
    if named and named[0].match == "id":
        return named[:limit]
    signed = _by_signature(index, query)
    rest = _by_words(index, query)
    best: dict[str, Hit] = {}
    for hit in (*named, *signed, *rest):
        best.setdefault(hit.id, hit)
    return list(best.values())[: max(0, limit)]


def _by_id(index: _Index, query: str) -> list[Hit]:
    """The card of that very id, or those whose ids are nearest."""
    name = re.sub(r"[\s_]+", "-", query.lower()).strip("-")
    ids = {card.id: card for card in index.cards}
    if name in ids:
        return [_hit(ids[name], 1.0, "id")]
    if not name or len(name) > 60 or not name.isascii() or ("-" not in query and " " in query):
        return []
    near = get_close_matches(name, ids, n=3, cutoff=NEAR_ID)
    return [_hit(ids[one], SequenceMatcher(None, name, one).ratio(), "near-id") for one in near]


def _by_signature(index: _Index, query: str) -> list[Hit]:
    """Cases one of whose log signatures matches, the longest match first."""
    text = query.lower()
    hits = []
    for card in index.cards:
        held = [one for one in card.signatures if likely(one, text)]
        lengths = [len(match.group()) for one in held if (match := re.search(f"(?m){one}", text)) is not None]
        if lengths and max(lengths) > 0:
            hits.append(_hit(card, 1 + max(lengths), "signature"))
    return sorted(hits, key=lambda hit: -hit.score)


def _by_words(index: _Index, query: str) -> list[Hit]:
    """Cards by the words they share with the query, and by what kind of line the query is."""
    words = frozenset(_known(index, words_of(query)))
    total, bonus = index.total(words), _line(query)
    if not total and not bonus:
        return []
    length = math.sqrt(index.square(words)) or 1.0
    hits = []
    for card in index.cards:
        typed, described = words & card.typed, words & card.described - card.typed
        shared = (index.total(typed) + DESCRIBED * index.total(described)) / (total or 1.0)
        phrase = max((_cosine(index, typed, length, phrase) for phrase in card.phrases), default=0.0) if typed else 0.0
        score = PHRASE_SHARE * phrase + (1 - PHRASE_SHARE) * shared + bonus.get(card.id, 0.0)
        if score >= LEAST:
            favour = SYMPTOM_FAVOUR if card.kind == "symptom" or phrase > NEARLY_THE_SAME else 1.0
            hits.append(_hit(card, score * favour, "words"))
    return sorted(hits, key=lambda hit: -hit.score)


def _cosine(index: _Index, words: frozenset[str], length: float, phrase: frozenset[str]) -> float:
    """Cosine similarity of a query of that `length` and one phrase; `words` are those of the query that the card has."""
    shared = words & phrase
    if not shared:
        return 0.0
    return index.square(shared) / (length * math.sqrt(index.square(phrase)))


def _line(query: str) -> dict[str, float]:
    """Symptoms that a pasted line shows by its form: an error of some kind, or a row of metrics with a NaN."""
    bonus: dict[str, float] = {}
    errors = [match for line in query.splitlines() if (match := _ERROR.search(line)) is not None]
    if errors:
        kind, message = errors[-1].groups()
        shown = {"memory": ("oom-at-start",), "timeout": ("hangs",), "collective": ("multi-gpu-odd",), "error": ("crashes",)}
        for symptom in shown.get(end_of(CrashError(kind, message)), ()):
            bonus[symptom] = LINE_BONUS
    if _NAN_LINE.search(query.lower()):
        epoch = _EPOCH.search(query.lower())
        begun = epoch is None or float(epoch.group(1).strip(".") or 0) <= _FIRST_EPOCH
        bonus["nan-at-start" if begun else "nan-mid-run"] = LINE_BONUS
    return bonus


def _hit(card: _Card, score: float, match: Match) -> Hit:
    return Hit(card.kind, card.id, card.title, score, match)


@cache
def _index(language: Language | None) -> _Index:
    """Every card of the casebook and of the symptoms, indexed once."""
    things = (*found("tuneclinic.symptoms", Symptom), *found("tuneclinic.casebook", Case))
    cards = tuple(_card(thing, (language,) if language else LANGUAGES) for thing in things)
    seen: Counter[str] = Counter()
    for card in cards:
        seen.update(card.typed | card.described)
    weights = {
        word: math.log(1 + len(cards) / count) * (CONCEPT_FAVOUR if word[0] == "~" else 1.0) for word, count in seen.items()
    }
    return _Index(cards, weights)


def _card(thing: Any, languages: Iterable[Language]) -> _Card:
    """One symptom or case as it is searched."""
    kind: Literal["symptom", "case"] = "symptom" if isinstance(thing, Symptom) else "case"
    phrases: list[frozenset[str]] = []
    described: set[str] = set()
    for name, text in _fields(thing, languages):
        if name == "phrase":
            phrases.append(frozenset(words_of(text)))
        else:
            described.update(words_of(text, concepts=False))
    typed = frozenset().union(*phrases)
    signatures = getattr(thing, "signatures", ())
    return _Card(kind, thing.id, Text(thing.en.title, thing.zh.title), typed, frozenset(described), tuple(phrases), signatures)


def _fields(thing: Any, languages: Iterable[Language]) -> Iterator[tuple[str, str]]:
    """What a card is found by: its id, its phrases, its titles and what it looks like."""
    yield "phrase", thing.id.replace("-", " ")
    for phrase in thing.search:
        yield "phrase", phrase
    for language in languages:
        card = thing.card(language)
        yield "phrase", card.title
        yield "sign", card.seen if isinstance(thing, Symptom) else card.sign


def _known(index: _Index, words: Iterable[str]) -> Iterator[str]:
    """The words, each unknown Latin one replaced by the known word that it misspells."""
    for word in words:
        if word in index.weights or len(word) < 5 or not word.isascii() or not word.isalpha():
            yield word
            continue
        likely = [known for known in index.weights if known[0] == word[0] and abs(len(known) - len(word)) < 3]
        yield next(iter(get_close_matches(word, likely, n=1, cutoff=NEAR_WORD)), word)


__all__ = ["Hit", "Match", "find"]
