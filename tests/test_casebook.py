"""The casebook as a whole: who opens each symptom's ranking, how the priors add up, what can be pasted."""

from collections import defaultdict

import pytest

from tuneclinic.report.cards import suspects
from tuneclinic.report.story import ALL_FRAMEWORKS
from tuneclinic.triage import cases, symptoms
from tuneclinic.vocabulary import NAMES

FIRST = {
    "nan-at-start": "lr-too-high", "loss-at-uniform": "labels-not-shifted", "loss-not-falling": "lr-too-low", "loss-oscillates": "lr-too-high",
    "loss-diverges": "lr-too-high", "loss-near-zero": "too-many-epochs", "eval-erratic": "eval-mode-forgotten", "parrots": "too-many-epochs",
    "never-stops": "end-token-masked", "template-residue": "serving-template-differs", "blind-to-image": "image-placeholder-mismatch",
    "worse-in-inference": "serving-template-differs", "oom-at-start": "weights-do-not-fit", "oom-late": "eval-without-inference-mode",
    "slow": "input-bound", "multi-gpu-odd": "sampler-not-distributed",
}  # fmt: skip
"""By experience: what an engineer looks at first for each symptom."""


@pytest.mark.parametrize("symptom", FIRST)
def test_the_prime_suspect_opens_the_ranking(symptom):
    assert suspects(symptom, cases())[0][1].id == FIRST[symptom]


def test_every_symptom_has_suspects():
    for symptom in symptoms():
        assert len(suspects(symptom.id, cases())) >= 3, symptom.id


def test_priors_within_a_symptom_are_a_distribution():
    sums = defaultdict(float)
    for case in cases():
        for symptom, prior in case.symptoms.items():
            if case.kind == "fault":
                sums[symptom] += prior
    assert {symptom: round(total, 2) for symptom, total in sums.items() if total > 1.1} == {}


def test_most_of_the_handbook_is_written():
    assert len(cases()) >= 137
    assert {case.kind for case in cases()} == {"fault", "benign"}


@pytest.mark.parametrize("case", [case for case in cases() if case.change], ids=lambda case: case.id)
def test_a_setting_to_change_can_be_pasted_in_some_framework(case):
    for name in case.change:
        assert any(NAMES[name].key(framework) for framework in ALL_FRAMEWORKS), name


def test_cards_say_what_to_do_and_how_to_see_it():
    for case in cases():
        for card in (case.en, case.zh):
            assert len(card.remedy) > 30, case.id
            assert len(card.verify) > 8, case.id
            assert "—" not in card.remedy + card.cause + card.sign, case.id
