"""Every case and every symptom keeps the contract, and no case is confirmed on another's sick example undeclared."""

import pytest

from tuneclinic.case import Case
from tuneclinic.registry import found
from tuneclinic.symptom import Symptom
from tuneclinic.testing import problems, symptom_problems

CASES = found("tuneclinic.casebook", Case)
SYMPTOMS = found("tuneclinic.symptoms", Symptom)
CASE_IDS = {case.id for case in CASES}
SYMPTOM_IDS = {symptom.id for symptom in SYMPTOMS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case_keeps_the_contract(case):
    assert problems(case, SYMPTOM_IDS, CASE_IDS) == []


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.id)
def test_symptom_keeps_the_contract(symptom):
    assert symptom_problems(symptom) == []


def test_ids_are_unique():
    assert len(CASE_IDS) == len(CASES)
    assert len(SYMPTOM_IDS) == len(SYMPTOMS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_confusion_matrix_of_examples(case):
    """A confirmation off the diagonal must be declared by `explains` of one of the two."""
    undeclared = []
    for other in CASES:
        if other.id == case.id or other.id in case.explains or case.id in other.explains:
            continue
        for number, evidence in enumerate(case.sick, 1):
            if other.kind == "fault" and other.detect(evidence).verdict == "confirmed":
                undeclared.append(f"{other.id} is confirmed on sick example {number}")
    assert undeclared == []
