"""The table of versions known to be bad, and how it is matched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from tuneclinic import versions
from tuneclinic.casebook.environment.version_mismatch import VersionMismatch
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.evidence import Evidence
from tuneclinic.registry import found
from tuneclinic.sections import Environment
from tuneclinic.symptom import Symptom
from tuneclinic.vocabulary import NAMES

CASE = VersionMismatch()


def test_the_table_is_whole():
    entries = versions.known()
    symptoms = {symptom.id for symptom in found("tuneclinic.symptoms", Symptom)}
    assert len(entries) > 250
    assert len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.symptom in symptoms, entry.id
        assert entry.what, entry.id
        assert entry.fix, entry.id
        assert entry.source, entry.id
        assert entry.packages, entry.id
        assert set(entry.settings) <= set(NAMES), entry.id
        for name, specifier in entry.packages.items():
            assert name == name.lower().replace("_", "-"), entry.id
            assert str(SpecifierSet(specifier)), entry.id


@pytest.mark.parametrize(
    ("specifier", "version", "expected"),
    [
        (">=4.46.0,<4.48.3", "4.48.2", True), (">=4.46.0,<4.48.3", "4.48.3", False), ("==2.5.*", "2.5.1+cu121", True), ("<2.6", "2.6.0a0+git12", False),
        (">=5.0.0.dev0", "5.0.0.dev3", True), ("==2.7.4.post1", "2.7.4.post1", True), (">=4.0", "", False), (">=4.0", "main", False), (">=4.0", "9" * 5000, False),
        ("no specifier", "1.0", False),
    ],
)  # fmt: skip
def test_specifiers(specifier, version, expected):
    assert versions.holds(specifier, version) is expected


@given(st.text(max_size=80), st.text(max_size=80))
def test_holds_never_raises(specifier, version):
    assert versions.holds(specifier, version) in {True, False}
    assert versions.holds(">=1.0", version) in {True, False}


@pytest.mark.parametrize(
    ("card", "capability"),
    [
        ("Tesla T4", "7.5"), ("NVIDIA A100-SXM4-80GB", "8.0"), ("NVIDIA GeForce RTX 3090", "8.6"), ("NVIDIA GeForce RTX 4090", "8.9"), ("NVIDIA L40S", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"), ("NVIDIA B200", "10.0"), ("NVIDIA GeForce RTX 5090", "12.0"), ("Tesla V100-SXM2-32GB", "7.0"), ("AMD Instinct MI300X", None),
    ],
)  # fmt: skip
def test_capabilities(card, capability):
    assert versions.capability_of(card) == capability


def env(**packages):
    return Environment(packages={name.replace("_", "-"): version for name, version in packages.items()})


def test_all_packages_of_an_entry_must_fit():
    both = {entry.id for entry in versions.fitting(env(transformers="4.46.1", tokenizers="0.21.0"))}
    one = {entry.id for entry in versions.fitting(env(transformers="4.46.1"))}
    mended = {entry.id for entry in versions.fitting(env(transformers="4.46.1", tokenizers="0.20.3"))}
    assert "tf-tokenizers-446" in both
    assert "tf-tokenizers-446" not in one | mended


def test_an_error_in_other_words_confirms_nothing():
    """The pair is bad and the run crashed, of something else."""
    seen = Evidence(
        environment=env(transformers="4.46.1", tokenizers="0.21.0", torch="2.5.1"), crash=make.crashed("KeyError", "'text'")
    )
    assert CASE.detect(seen).verdict == "ruled_out"


def test_the_settings_of_an_entry_must_agree():
    stack = env(deepspeed="0.15.4", torch="2.5.1", transformers="4.46.3")
    stalls = make.ran(loss=make.level(200, 2.0), grad_norm=make.level(200, 1.0, 0.3), learning_rate=make.peaked())
    offloaded = Evidence(environment=stack, metrics=stalls, settings=make.configured(offload_optimizer="cpu", accumulation=8))
    kept = Evidence(environment=stack, metrics=stalls, settings=make.configured(offload_optimizer="none", accumulation=8))
    assert CASE.detect(offloaded).verdict == "suspected"
    assert CASE.detect(kept).verdict in {"ruled_out", "not_checked"}


def test_a_log_line_of_a_known_fault_that_is_no_crash_confirms_with_its_versions():
    line = (
        "UserWarning: Found missing adapter keys while loading the checkpoint: ['base_model.model.model.layers.0.q_proj.lora_A']"
    )
    bad = Evidence(environment=env(transformers="4.52.4", peft="0.15.2"), log=make.logged(line))
    good = Evidence(environment=env(transformers="4.53.0", peft="0.19.0"), log=make.logged(line))
    assert CASE.detect(bad).verdict == "confirmed"
    assert CASE.detect(good).verdict != "confirmed"


def test_a_healthy_run_on_a_current_stack_raises_nothing():
    stack = env(
        torch="2.9.1",
        transformers="4.57.6",
        trl="0.24.0",
        peft="0.18.0",
        accelerate="1.12.0",
        datasets="4.4.1",
        numpy="2.3.5",
        deepspeed="0.18.2",
    )
    seen = Evidence(
        environment=stack,
        metrics=make.ran(loss=make.falling(), learning_rate=make.peaked()),
        settings=make.configured("trl", packing=True, accumulation=4),
    )
    assert CASE.detect(seen).verdict == "ruled_out"
