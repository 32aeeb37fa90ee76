"""Finding cards by id, by words, by pasted lines."""

import importlib.util
import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.case import Case
from tuneclinic.registry import found
from tuneclinic.search import find
from tuneclinic.signature import likely, needed_by
from tuneclinic.symptom import Symptom

SPEC = importlib.util.spec_from_file_location("search_phrases", Path(__file__).with_name("phrases.py"))
PHRASES_MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(PHRASES_MODULE)
FIRST, SECOND = PHRASES_MODULE.PHRASES, PHRASES_MODULE.MORE_PHRASES
SYMPTOMS = {symptom.id: symptom for symptom in found("tuneclinic.symptoms", Symptom)}
CASES = {case.id: case for case in found("tuneclinic.casebook", Case)}


def pairs(table):
    return [(name, phrase) for name, phrases in table.items() for phrase in phrases]


def card_first(name, hits):
    """Whether the symptom is the first hit, or stands behind cases of its own only: one whose log signature or phrase fits."""
    before = []
    for hit in hits:
        if hit.id == name:
            return all(case in CASES and name in CASES[case].symptoms for case in before)
        before.append(hit.id)
    return False


def test_a_hundred_phrases_half_of_them_chinese():
    phrases = [phrase for _, phrase in pairs(FIRST)]
    chinese = [phrase for phrase in phrases if any("\u4e00" <= letter <= "\u9fff" for letter in phrase)]
    assert set(FIRST) == set(SYMPTOMS)
    assert len(set(phrases)) == 100
    assert len(chinese) == 50


def test_the_phrases_are_not_those_of_the_cards():
    known = {phrase.lower() for thing in (*SYMPTOMS.values(), *CASES.values()) for phrase in thing.search}
    assert not [phrase for _, phrase in pairs(FIRST) if phrase.lower() in known]


@pytest.mark.parametrize(("name", "phrase"), pairs(FIRST))
def test_each_phrase_finds_its_card_first(name, phrase):
    assert card_first(name, find(phrase))


def test_the_second_hundred():
    missed = [(name, phrase) for name, phrase in pairs(SECOND) if not card_first(name, find(phrase))]
    assert len(missed) <= 3, missed


@pytest.mark.parametrize("name", [*SYMPTOMS, *CASES])
def test_ids(name):
    assert find(name)[0].id == name
    assert find(name.replace("-", "_").upper())[0].match == "id"


@pytest.mark.parametrize(
    ("typed", "meant"), [("nan-at-strat", "nan-at-start"), ("overfit", "overfits"), ("loss-osillates", "loss-oscillates")]
)
def test_nearest_ids(typed, meant):
    assert find(typed)[0].id == meant


def test_a_signature_puts_its_case_first():
    for case in CASES.values():
        literal = next((pattern for pattern in case.signatures if len(pattern) > 20 and needed_by(pattern) == (pattern,)), None)
        if literal is not None:
            hit = find(f"[rank0]: {literal} and so on")[0]
            assert hit.kind == "case"
            assert hit.match == "signature"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ValueError: Image features and image tokens do not match: tokens: 14650, features 17152", "crashes"),
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.45 GiB", "oom-at-start"),
        ("RuntimeError: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)", "hangs"),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address",
            "multi-gpu-odd",
        ),
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}", "nan-at-start"),
        ("step 812 | loss: nan | grad_norm: nan | epoch: 2.31", "nan-mid-run"),
    ],
)
def test_pasted_lines_find_their_symptom(line, name):
    assert next(hit.id for hit in find(line, limit=10) if hit.kind == "symptom") == name


def test_misspelt_words_are_read():
    assert find("loss oscilates wildy")[0].id == "loss-oscillates"


def test_one_language_only():
    assert find("复读机", language="zh")[0].id == "parrots"
    assert find("repeats itself", language="en")[0].id == "parrots"


def test_nothing_is_found_for_nothing():
    assert find("") == []
    assert find("xyzzy 123456789") == []
    assert find("loss", limit=0) == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300) | st.text(alphabet="0123456789.errorException: 损失不降<|im_start|>\n[]{}'\"()\\", max_size=300))
def test_any_text_is_answered(text):
    hits = find(text, limit=3)
    assert len(hits) <= 3
    assert len({hit.id for hit in hits}) == len(hits)


def test_long_pastes_are_bounded():
    assert find("a" * 1_000_000 + " RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB")[0].id == "oom-at-start"
    assert isinstance(find("9" * 5_000 + "." + "9" * 5_000), list)


def test_needed_text_of_patterns():
    assert needed_by(r"could not find response key") == ("could not find response key",)
    assert needed_by(r"tokens: \d+, features \d+") == (", features ",)
    assert needed_by(r"first line|second (?:or third )?line") == ("first line", "second ")
    assert needed_by(r"plain text|\d+") == ()
    assert "ly" not in "".join(needed_by(r"optional(ly)? here"))


SIGNATURES = [pattern for pattern in chain.from_iterable(case.signatures for case in CASES.values()) if needed_by(pattern)]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SIGNATURES).flatmap(lambda pattern: st.tuples(st.just(pattern), st.from_regex(pattern))))
def test_every_match_holds_the_needed_text(drawn):
    pattern, text = drawn
    if re.search(f"(?m){pattern}", text):
        assert likely(pattern, text)
