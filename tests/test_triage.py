"""The ranking, the cap on hyperparameters, and what is said when nothing can be said."""

import pytest

from tuneclinic.case import Case
from tuneclinic.diagnosis import Read
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Metrics, Series, Setting, Settings
from tuneclinic.triage import examine

SAMPLE = Evidence(metrics=Metrics({"loss": Series.of([2.0 - step / 50 + 0.02 * (step % 3) for step in range(40)])}))


def case(id_, verdict, *weights, section="metrics", symptoms=None, **attributes):
    """A case with a fixed answer."""

    def detect(self, _seen):
        return getattr(self, verdict)(*(Exhibit("seen", weight=weight, section=section) for weight in weights))

    body = {"id": id_, "symptoms": symptoms or {"never-stops": 0.2}, "needs": ("metrics",), "detect": detect, **attributes}
    return type("Made", (Case,), body)()


def order(*book, seen=SAMPLE, stated=("never-stops",)):
    return [finding.case for finding in examine(seen, stated=stated, book=book).findings]


def test_confirmed_comes_before_suspected_and_ruled_out_last():
    assert order(case("c", "ruled_out", -3), case("b", "suspected", 2), case("a", "confirmed", 9)) == ["a", "b", "c"]


def test_bits_add_to_the_prior():
    weak, strong = case("weak", "suspected", 1, symptoms={"never-stops": 0.4}), case("strong", "suspected", 2, 2)
    diagnosis = examine(SAMPLE, stated=["never-stops"], book=[weak, strong])
    found = {finding.case: finding.probability for finding in diagnosis.findings}
    assert found["weak"] == pytest.approx(2 / 3 * 2 / (1 + 2 / 3 * 2))  # odds 0.4/0.6 times 2
    assert found["strong"] == pytest.approx(0.8)  # odds 1/4 times 16 are 4 to 1
    assert diagnosis.findings[0].case == "strong"


def test_evidence_against_lowers_a_suspect():
    assert order(case("liked", "suspected", 1), case("doubted", "suspected", 3, -5)) [0] == "liked"  # fmt: skip


def test_a_hyperparameter_from_settings_alone_is_only_suspected():
    made = case("rate", "confirmed", 9, section="settings", stage="hyperparameters")
    finding = examine(SAMPLE, stated=["never-stops"], book=[made]).findings[0]
    assert (finding.verdict, finding.capped) == ("suspected", True)
    proven = case("rate", "confirmed", 9, section="metrics", stage="hyperparameters")
    assert examine(SAMPLE, stated=["never-stops"], book=[proven]).findings[0].verdict == "confirmed"


def test_a_suspicion_without_any_symptom_is_kept_to_ourselves():
    diagnosis = examine(SAMPLE, book=[case("quiet", "suspected", 2)])
    assert diagnosis.findings[0].verdict == "not_checked"


def test_a_consequence_stands_behind_its_cause():
    cause = case("cause", "confirmed", 3, explains=("effect",))
    effect = case("effect", "confirmed", 9)
    diagnosis = examine(SAMPLE, stated=["never-stops"], book=[effect, cause])
    assert [finding.case for finding in diagnosis.findings] == ["cause", "effect"]
    assert diagnosis.findings[1].consequence_of == "cause"


def test_a_case_that_raises_is_errored_and_the_rest_go_on():
    def detect(_self, _seen):
        raise ZeroDivisionError("oh")

    broken = type(
        "Broken", (Case,), {"id": "broken", "symptoms": {"never-stops": 0.2}, "needs": ("metrics",), "detect": detect}
    )()
    diagnosis = examine(SAMPLE, stated=["never-stops"], book=[broken, case("fine", "confirmed", 9)])
    assert {finding.case: finding.verdict for finding in diagnosis.findings} == {"broken": "errored", "fine": "confirmed"}


def test_suspects_that_nothing_speaks_for_are_named_by_their_priors():
    blind = case("blind", "not_checked", symptoms={"never-stops": 0.45}, needs=("data",))
    diagnosis = examine(SAMPLE, stated=["never-stops"], book=[blind])
    assert (diagnosis.findings[0].verdict, diagnosis.findings[0].prior_only) == ("suspected", True)
    assert diagnosis.conclusion == "not_enough_evidence"
    assert diagnosis.next.section == "data"


def test_a_benign_explanation_is_no_fault():
    benign = case("harmless", "confirmed", 9, kind="benign")
    diagnosis = examine(SAMPLE, read=[Read("x", "y", {"rows": 1})], stated=["never-stops"], book=[benign])
    assert diagnosis.conclusion == "no_fault"
    assert diagnosis.exit_code == 0


def test_nothing_understood_is_exit_code_two():
    assert examine(Evidence(), read=[Read("x", "unknown")], book=[]).exit_code == 2


def test_settings_alone_end_in_not_enough_evidence():
    seen = Evidence(settings=Settings({"learning_rate": Setting(1e-4)}))
    assert examine(seen, read=[Read("a.yaml", "yaml", {"settings": 1})], book=[]).conclusion == "not_enough_evidence"
