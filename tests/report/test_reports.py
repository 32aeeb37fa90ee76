"""All renderers over one diagnosis with hostile text in it."""

import json
import re
from importlib.resources import files

import jsonschema
import pytest
from rich.cells import cell_len

from tuneclinic.diagnosis import Comparison, Diagnosis, Finding, Read, Sighting, Step
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.report import html, markdown, terminal
from tuneclinic.report import json as as_json
from tuneclinic.report.clean import clean
from tuneclinic.report.mask import mask
from tuneclinic.report.wrap import wrap
from tuneclinic.sections import Metrics, Series, Setting, Settings
from tuneclinic.words import Text

HOSTILE = "<script>alert(1)</script> \x1b[2J\x1b]0;title\x07 `rm` [x](y) @someone \u202e reversed"


@pytest.fixture
def diagnosis():
    seen = Evidence(
        settings=Settings(
            {"learning_rate": Setting(0.1, "train.yaml:3", "train.yaml", "learning_rate")}, framework="llama-factory"
        ),
        metrics=Metrics(
            {"loss": Series.of([3.0, 2.0, 1.5, float("nan"), float("nan")]), "eval_loss": Series.of([2.5, 2.0], [2, 4])}
        ),
    )
    finding = Finding(
        "saved-adapter-empty",
        "confirmed",
        (
            Exhibit(HOSTILE, "/home/someone/run/adapter_model.safetensors", weight=9),
            Exhibit("secret text", private=True, weight=-2),
        ),
        probability=0.99,
        symptoms=("worse-in-inference",),
        change={"learning_rate": 2e-5},
    )
    return Diagnosis(
        run=HOSTILE,
        conclusion="fault",
        read=(Read("train.log", "text-log", {"train rows": 5}, {"other lines": 7}), Read(HOSTILE, "unknown")),
        sightings=(Sighting("worse-in-inference", "confirmed", (Exhibit(Text("worse", "变差"), "step 4"),), first_step=4.0),),
        findings=(finding, Finding("other", "ruled_out")),
        usual=(Comparison(Text("first loss", "初始 loss"), 3.0, 1.0, 2.0, "step 1", 14, "model cards"),),
        next=Step(Text("Give the data.", "请给数据。"), section="data", settles=("other",)),
        evidence=seen,
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_terminal_is_80_cells_wide_and_harmless(diagnosis, language):
    text = terminal.render(diagnosis, language)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "learning_rate: 2.0e-05" in text
    assert text.rstrip().splitlines()[-1] != ""
    assert ("没有看过" if language == "zh" else "Not looked at") in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_html_is_self_contained_and_escaped(diagnosis, language):
    page = html.render([diagnosis], language)
    assert "<script" not in page
    assert "\x1b" not in page
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", page)
    assert "prefers-color-scheme" in page
    assert 'class="bad"' in page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_json_keeps_its_published_schema(diagnosis, language):
    schema = json.loads(files("tuneclinic.report").joinpath("schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(as_json.render([diagnosis], language)), schema)
    jsonschema.validate(json.loads(as_json.render([diagnosis, diagnosis], language)), schema)


def test_markdown_lets_nothing_through(diagnosis):
    text = markdown.render([diagnosis])
    assert "<script" not in text
    assert "@someone" not in text
    assert "[x](y)" not in text


def test_share_masks_paths_and_samples(diagnosis):
    shown = (
        terminal.render(mask(diagnosis))
        + html.render([mask(diagnosis)])
        + as_json.render([mask(diagnosis)])
        + markdown.render([mask(diagnosis)])
    )
    assert "secret text" not in shown
    assert "/home/someone" not in shown
    assert "adapter_model.safetensors" in shown


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("open /home/alice/data/x.json failed", "open <path>/x.json failed"),
        (r"C:\Users\alice\run\a.log:3", r"<path>/a.log:3"),
        ("see https://host.internal/a?b=c now", "see <address> now"),
        ("bound to 10.0.0.7:29500", "bound to <address>"),
        ("hf_abcdefghijklmnopqrst", "<key>"),
        ("loss 1/2 at 3/4", "loss 1/2 at 3/4"),
        ("tokens/s 12.5", "tokens/s 12.5"),
    ],
)
def test_what_masking_takes_and_leaves(text, masked):
    from tuneclinic.report.mask import _masked

    assert _masked(text) == masked


def test_chinese_is_wrapped_without_stranded_punctuation():
    text = "学习率过高会让 loss 震荡，先把学习率除以十；如果仍然发散，再检查数据。" * 3
    for width in range(10, 60):
        lines = wrap(text, width)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert all(cell_len(line) <= width for line in lines)
        assert not any(line[0] in "，。；" for line in lines)


def test_clean_takes_escapes_and_controls():
    assert clean("a\x1b[31mred\x1b[0m\x00b\r\nc") == "ared·b  c"
    assert len(clean("x" * 10_000_000)) < 700
