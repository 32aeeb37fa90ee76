"""Every symptom keeps the contract, and together they are the closed list."""

import pytest

from tuneclinic.registry import found
from tuneclinic.symptom import Symptom
from tuneclinic.testing import symptom_problems

SYMPTOMS = found("tuneclinic.symptoms", Symptom)
IDS = [
    "nan-at-start",
    "nan-mid-run",
    "loss-at-uniform",
    "loss-not-falling",
    "cannot-overfit",
    "loss-oscillates",
    "loss-diverges",
    "loss-near-zero",
    "overfits",
    "eval-erratic",
    "parrots",
    "forgets",
    "never-stops",
    "template-residue",
    "blind-to-image",
    "worse-in-inference",
    "worse-after-merge",
    "oom-at-start",
    "oom-late",
    "slow",
    "multi-gpu-odd",
    "hangs",
    "resume-jumps",
    "preference-odd",
    "crashes",
]


def test_the_list_is_closed():
    assert sorted(symptom.id for symptom in SYMPTOMS) == sorted(IDS)


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.id)
def test_contract(symptom):
    assert symptom_problems(symptom) == []


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.id)
def test_near_misses_and_phrases(symptom):
    assert symptom.healthy
    assert len(symptom.search) >= 6
    chinese = [phrase for phrase in symptom.search if any("\u4e00" <= letter <= "\u9fff" for letter in phrase)]
    assert 2 <= len(chinese) < len(symptom.search)


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.id)
def test_exhibits_have_a_section_and_both_languages(symptom):
    for evidence in symptom.sick:
        for exhibit in symptom.see(evidence).exhibits:
            assert exhibit.section
            if not isinstance(exhibit.text, str):
                assert exhibit.text.en
                assert exhibit.text.zh
