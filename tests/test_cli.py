"""The command line as a user has it: output, exit codes, letters."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCHEMA = json.loads(files("tuneclinic.report").joinpath("schema.json").read_text(encoding="utf-8"))


def run(*arguments, given="", **environment):
    done = subprocess.run(
        [sys.executable, "-c", "from tuneclinic.cli import main; main()", *map(str, arguments)],
        input=given.encode(), capture_output=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONUTF8": "1", "LANG": "C.UTF-8", **environment},
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_fault_is_exit_code_one_and_silence_zero():
    assert run("diagnose", EXAMPLES / "never-stops")[0] == 1
    assert run("diagnose", EXAMPLES / "healthy")[0] == 0


def test_nothing_readable_is_exit_code_two(tmp_path):
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 20)
    code, out, _ = run("diagnose", tmp_path)
    assert code == 2
    assert "Nothing here could be read" in out


def test_missing_path_is_a_letter(tmp_path):
    code, out, err = run("diagnose", tmp_path / "gone")
    assert (code, out) == (2, "")
    assert "There is nothing at" in err
    assert "$ tuneclinic diagnose ." in err
    assert "Traceback" not in err


def test_unknown_symptom_is_a_letter():
    code, _, err = run("diagnose", EXAMPLES / "healthy", "--symptom", "is-haunted")
    assert code == 2
    assert "never-stops" in err


@pytest.mark.parametrize("path", ["never-stops", "worked-case/before", "healthy"])
def test_json_keeps_the_schema(path):
    _, out, _ = run("diagnose", EXAMPLES / path, "--json")
    jsonschema.validate(json.loads(out), SCHEMA)


def test_stated_symptom_counts_as_seen():
    code, out, _ = run("diagnose", EXAMPLES / "healthy", "--symptom", "never-stops", "--json")
    told = json.loads(out)
    assert code == 1
    assert {"id": "never-stops", "stated": True}.items() <= next(
        one for one in told["symptoms"] if one["id"] == "never-stops"
    ).items()
    assert told["findings"][0]["verdict"] == "suspected"


def test_traceback_on_standard_input():
    text = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    model = AutoModelForCausalLM.from_pretrained(path)
  File "/lib/transformers/modeling_utils.py", line 4000, in from_pretrained
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 57.06 MiB is free. \
Including non-PyTorch memory, this process has 23.57 GiB memory in use. Of the allocated memory 23.20 GiB is allocated by PyTorch, and \
10.00 MiB is reserved by PyTorch but unallocated.
"""
    code, out, _ = run("diagnose", "-", "--json", given=text)
    told = json.loads(out)
    assert code == 1
    assert told["findings"][0]["case"] == "weights-do-not-fit"


def test_html_and_share(tmp_path):
    page = tmp_path / "page.html"
    run("diagnose", EXAMPLES / "worked-case" / "before", "--html", page, "--share", "--lang", "zh")
    text = page.read_text(encoding="utf-8")
    assert "Harbour Hotel" not in text
    assert "对话模板" in text
    assert "<script" not in text


def test_markdown():
    _, out, _ = run("diagnose", EXAMPLES / "never-stops", "--markdown")
    assert out.startswith("## never-stops")


def test_the_locale_chooses_the_language():
    assert "没有看过" in run("diagnose", EXAMPLES / "healthy", LANG="zh_CN.UTF-8")[1]
    assert "Not looked at" in run("diagnose", EXAMPLES / "healthy", LANG="de_DE.UTF-8")[1]


@pytest.mark.parametrize("words", ["end-token-masked", "never-stops", "模型不停", "CUDA out of memory"])
def test_explain(words):
    code, out, _ = run("explain", words)
    assert code == 0
    assert len(out.splitlines()) > 8


def test_explain_says_when_nothing_fits():
    code, _, err = run("explain", "zzqqxx")
    assert code == 2
    assert err


def test_book_lists_and_ranks():
    code, out, _ = run("book")
    assert code == 0
    assert "end-token-masked" in out
    first = run("book", "--symptom", "never-stops")[1].split()[0]
    assert first == "end-token-masked"


def test_book_writes_cards(tmp_path):
    code, _, _ = run("book", "--folder", "memory", "--cards", tmp_path / "cards")
    assert code == 0
    assert (tmp_path / "cards" / "weights-do-not-fit.md").is_file()


def test_table_columns_can_be_overridden(tmp_path):
    rows = "".join(f"{step},{3 - step / 40:.3f},{9}\n" for step in range(60))
    (tmp_path / "odd.csv").write_text("n,quantity,other\n" + rows)
    _, out, _ = run("diagnose", tmp_path / "odd.csv", "--column", "step=n", "--column", "loss=quantity", "--json")
    told = json.loads(out)
    assert told["conclusion"] == "no_fault"
    assert told["read"][0]["understood"] > 50


def test_the_commands_page_is_up_to_date(monkeypatch):
    docs = Path(__file__).parents[1] / "docs"
    monkeypatch.syspath_prepend(str(docs))
    import commands

    assert (docs / "commands.md").read_text(encoding="utf-8") == commands.page()


def test_follow_diagnoses_again_when_the_log_grows(tmp_path):
    log = tmp_path / "train.log"
    row = "{{'loss': {:.4f}, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': {}}}\n"
    log.write_text("".join(row.format(2 - step / 40, step / 10) for step in range(1, 21)))
    program = "from tuneclinic.cli import diagnose; diagnose.FOLLOW_SECONDS = 0.1; from tuneclinic.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program, "diagnose", str(log), "--follow"], stdout=subprocess.PIPE, text=True
    )
    try:
        _until(process.stdout, "Not looked at")
        with log.open("a") as more:
            more.write("".join(row.format(float("nan"), step / 10) for step in range(21, 40)))
        assert "nan-mid-run" in _until(process.stdout, "Not looked at")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _until(stream, words):
    text = ""
    for line in stream:
        text += line
        if words in line:
            break
    return text
