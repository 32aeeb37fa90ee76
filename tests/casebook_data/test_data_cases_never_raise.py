"""Hostile evidence: every case of the folder answers, whatever stands in it, and stays within milliseconds' worth of work."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._names import NAMES
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.evidence import Evidence
from tuneclinic.sections import (
    Crash,
    CrashError,
    Data,
    Output,
    Outputs,
    RowSet,
    Sample,
    Script,
    ScriptFact,
    Serving,
    Setting,
    Settings,
    Tokenizer,
)
from tuneclinic.triage import cases

OWN = [case for case in cases() if type(case).__module__.startswith("tuneclinic.casebook.data.")]
VERDICTS = {"confirmed", "suspected", "ruled_out", "not_checked"}
FIGURES = ("rows", "rendered_rows", "row_chars_p50", "row_chars_p95", "row_chars_max", "opening_share", "compression_ratio", "answer_chars_median", "source_blocks", "labels_equal_share", "labels_shifted_share")  # fmt: skip
SETTINGS = ("max_length", "packing", "pad_to_length", "train_on_prompt", "roles_to_train", "train_on_eos", "shuffle", "attention", "neat_packing", "batch_per_device", "truncation_side", "ignore_pad_in_loss", "eos_token")  # fmt: skip
FACTS = ("pad-is-eos", "pad-is-eos-with-lm-collator", "response-template-collator", "double-bos-tokenised", "labels-not-shifted", "shuffle-off", "tokens-added-without-resize")  # fmt: skip
text = some.text(max_size=40)
number = some.floats(allow_nan=True, allow_infinity=True) | some.integers(-(10**400), 10**400)
anything = number | text | some.booleans() | some.none() | some.lists(text, max_size=3)
ids = some.lists(some.integers(-200, 10**12), max_size=12).map(tuple)
sample = some.builds(
    Sample,
    some.integers(1, 9),
    some.sampled_from(["train.jsonl", "eval.jsonl", ""]),
    some.lists(some.tuples(some.sampled_from(["user", "assistant", "system", "tool"]), text), max_size=3).map(tuple),
    some.none() | text,
    some.integers(0, 3),
    some.none() | text,
    some.none() | ids,
    some.none() | ids,
)
rowset = some.builds(
    RowSet, some.sampled_from(sorted(NAMES)), some.lists(some.integers(1, 99), max_size=6).map(tuple), text, text
)
data = some.builds(
    Data,
    some.sampled_from(["", "messages", "tokenised", "preference"]),
    some.integers(0, 2000),
    some.none() | some.integers(0, 2000),
    some.lists(sample, max_size=8).map(tuple),
    some.frozensets(some.sampled_from(sorted(NAMES))),
    some.lists(rowset, max_size=4).map(tuple),
    some.just(("train.jsonl",)) | some.just(()),
    some.dictionaries(some.sampled_from(FIGURES), number),
)
token = some.none() | some.sampled_from(["", "</s>", "<|im_end|>", "<|endoftext|>", "\x00"]) | text
tokenizer = some.builds(
    Tokenizer,
    bos=token,
    eos=token,
    pad=token,
    ids=some.dictionaries(some.sampled_from(["</s>", "<|im_end|>", "<s>"]), some.integers(-5, 10**9), max_size=3),
    template=some.none() | text | some.just(make.CHATML),
    generation_eos=some.none() | ids,
    adds_bos=some.none() | some.booleans(),
)
configured = some.builds(
    Settings,
    some.dictionaries(some.sampled_from(SETTINGS), some.builds(Setting, anything, text, text, text), max_size=6),
    some.sampled_from(["", "trl", "llama-factory", "axolotl", "ms-swift"]),
)
script = some.builds(Script, some.lists(some.builds(ScriptFact, some.sampled_from(FACTS), text, some.integers(1, 9), text, text), max_size=3).map(tuple), some.frozensets(some.sampled_from(FACTS)))  # fmt: skip
outputs = some.builds(Outputs, some.lists(some.builds(Output, text, text, text, finish=some.none() | text, tokens=some.none() | some.integers()), max_size=5).map(tuple), some.none() | number.filter(lambda x: isinstance(x, float)))  # fmt: skip
serving = some.builds(Serving, some.sampled_from(["", "ollama", "vllm"]), template=some.none() | text, stops=some.lists(text, max_size=2).map(tuple), adds_bos=some.none() | some.booleans())  # fmt: skip
metrics = some.lists(some.floats(allow_nan=True, allow_infinity=True), max_size=40).map(lambda losses: run.ran(loss=losses, grad_norm=losses[::-1], eval_loss=losses[:3]))  # fmt: skip
crash = some.builds(Crash, some.lists(some.builds(CrashError, text, text), max_size=2).map(tuple))
evidence = some.builds(
    Evidence,
    settings=some.none() | configured,
    metrics=some.none() | metrics,
    data=some.none() | data,
    tokenizer=some.none() | tokenizer,
    script=some.none() | script,
    crash=some.none() | crash,
    log=some.none() | some.lists(text, max_size=4).map(lambda texts: run.logged(*texts)),
    outputs=some.none() | outputs,
    serving=some.none() | serving,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(evidence)
def test_every_case_answers(seen):
    for case in OWN:
        finding = case.detect(seen)
        assert finding.verdict in VERDICTS
        assert finding.exhibits or finding.verdict == "not_checked", case.id
        assert math.isfinite(finding.weight)


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.id)
def test_row_exhibits_name_their_source_and_hide_samples(case):
    for seen in case.sick:
        for exhibit in case.detect(seen).exhibits:
            assert exhibit.section, exhibit
            assert not exhibit.rows or exhibit.source


def test_there_are_as_many_cases_as_files():
    assert len(OWN) == 39
