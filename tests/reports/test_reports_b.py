"""Run folders rebuilt from public reports, given to the tool as a stranger would give them."""

import sys
from pathlib import Path

import pytest

from tuneclinic.clinic import diagnose

sys.path.insert(0, str(Path(__file__).parent))
import cases_b
import cases_b_memory
import cases_b_use

CASES = {**cases_b.CASES, **cases_b_memory.CASES, **cases_b_use.CASES}
TOP = 3


def examined(folder, files):
    """The diagnoses of a folder with these files."""
    for name, content in files.items():
        where = folder / name
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content if isinstance(content, bytes) else content.encode())
    return diagnose(folder)


def spoken(diagnosis):
    """What the report would name, in order."""
    return [finding for finding in diagnosis.findings if finding.verdict in {"confirmed", "suspected"}]


def blamed(diagnosis):
    """The faults that are confirmed and follow from no other."""
    return {
        finding.case for finding in diagnosis.having("confirmed") if finding.kind == "fault" and finding.consequence_of is None
    }


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] != "no_fault"])
def test_true_cause_is_named(name, tmp_path):
    files, wanted, rank = CASES[name]
    found = examined(tmp_path, files)
    places = [place for one in found for place, finding in enumerate(spoken(one)) if finding.case in wanted]
    assert places, [[finding.case for finding in spoken(one)] for one in found]
    assert min(places) < (1 if rank == "prime" else TOP)
    assert set().union(*map(blamed, found)) <= wanted
    assert max(one.exit_code for one in found) == 1 or not any(map(blamed, found))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == "no_fault"])
def test_no_alarm_where_nothing_is_wrong(name, tmp_path):
    files, _, _ = CASES[name]
    for one in examined(tmp_path, files):
        assert not blamed(one)
        assert one.conclusion == "no_fault" or not one.seen
        assert one.exit_code == 0
