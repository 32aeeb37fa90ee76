"""Runs rebuilt from the facts of public reports, read, examined and judged as their users' folders would be."""

import sys
from pathlib import Path

import pytest

from tuneclinic.clinic import diagnose

sys.path.insert(0, str(Path(__file__).parent))
import cases_a

FAULTS = [case for case in cases_a.CASES if case.how != "no_fault"]
INNOCENT = [case for case in cases_a.CASES if case.how == "no_fault"]
TOP = {"prime": 1, "top3": 3}


def diagnosed(folder, files):
    """All runs that the tool finds in a folder with `files`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return diagnose(folder)


def spoken(diagnosis):
    """The cases that the report names, in order; those that follow from another stand behind it."""
    return [
        finding.case
        for finding in diagnosis.findings
        if finding.verdict in {"confirmed", "suspected"} and finding.consequence_of is None
    ]


def confirmed(diagnosis):
    """The faults that the report calls certain, without those that follow from another."""
    return {
        finding.case for finding in diagnosis.having("confirmed") if finding.kind == "fault" and finding.consequence_of is None
    }


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.id)
def test_the_cause_is_found_and_nothing_else_is_certain(tmp_path, case):
    found = diagnosed(tmp_path, case.files)
    assert any(set(case.expected) & set(spoken(one)[: TOP[case.how]]) for one in found), [spoken(one) for one in found]
    assert not set().union(*map(confirmed, found)) - {*case.expected, *case.beside}
    assert not any(finding.verdict == "errored" for one in found for finding in one.findings)


@pytest.mark.parametrize("case", INNOCENT, ids=lambda case: case.id)
def test_no_fault_is_found_where_there_is_none(tmp_path, case):
    (found,) = diagnosed(tmp_path, case.files)
    assert not confirmed(found)
    assert not [finding.case for finding in found.having("suspected") if not finding.prior_only]
    assert found.conclusion == "no_fault"
    assert found.exit_code == 0


def test_ids_are_unique():
    assert len({case.id for case in cases_a.CASES}) == len(cases_a.CASES)
