"""The example runs, made by real training, are diagnosed as what they are."""

from pathlib import Path

import pytest

from tuneclinic.clinic import diagnose

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_three_rates_in_vain_are_a_broken_template():
    runs = diagnose(EXAMPLES / "worked-case" / "before")
    assert len(runs) == 3
    for run in runs:
        assert run.findings[0].case == "chat-template-broken"
        assert run.findings[0].verdict == "confirmed"
        assert "loss-not-falling" in {sighting.symptom for sighting in run.seen}
        rates = [finding for finding in run.findings if finding.case in {"lr-too-low", "lr-too-high"}]
        assert not [finding for finding in rates if finding.verdict == "confirmed"]
        shown = {rows for exhibit in run.findings[0].exhibits for rows in exhibit.rows}
        assert shown == set(range(1, 65))


def test_after_the_template_is_mended_the_first_rate_works():
    (run,) = diagnose(EXAMPLES / "worked-case" / "after")
    assert run.seen == ()
    assert run.exit_code == 0
    (before, *_) = diagnose(EXAMPLES / "worked-case" / "before")
    first = before.evidence.settings.get("learning_rate")
    assert run.evidence.settings.get("learning_rate") == first


@pytest.mark.parametrize(
    ("name", "symptom", "case"),
    [("never-stops", "never-stops", "end-token-masked")],
)
def test_broken_runs(name, symptom, case):
    (run,) = diagnose(EXAMPLES / name)
    assert symptom in {sighting.symptom for sighting in run.seen}
    assert (run.findings[0].case, run.findings[0].verdict) == (case, "confirmed")
    assert run.exit_code == 1


def test_the_hidden_nan_is_named_and_its_cause_stands_before_it():
    (run,) = diagnose(EXAMPLES / "nan-hidden")
    assert "nan-at-start" in {sighting.symptom for sighting in run.seen}
    assert [finding.case for finding in run.findings[:2]] == ["lr-too-high", "nan-hidden-by-logging"]
    assert run.findings[1].verdict == "confirmed"
    assert run.exit_code == 1


def test_the_healthy_run_is_silent():
    (run,) = diagnose(EXAMPLES / "healthy")
    assert run.seen == ()
    assert not run.having("confirmed")
    assert not run.having("suspected")
    assert (run.conclusion, run.exit_code) == ("no_fault", 0)
