"""`tuneclinic diagnose`: what went wrong in a run, from what it left behind."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuneclinic.cli._options import language_option, letter
from tuneclinic.words import Language, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuneclinic.diagnosis import Diagnosis
    from tuneclinic.probes.gather import Progress

LONG_READ = 20 << 20
"""Bytes above which the reading shows its progress: it then lasts about a second."""
FOLLOW_SECONDS = 5.0
"""How often a followed run is looked at again: trainers log every few seconds."""
STDIN_BYTES = 256 << 20


@click.command()
@click.argument("run", nargs=-1, type=click.Path())
@click.option(
    "--symptom", "symptoms", multiple=True, metavar="ID", help="A symptom that you see, e.g. never-stops (may be repeated)."
)
@click.option(
    "--column", "columns", multiple=True, metavar="ROLE=NAME", help="Which column of a table is what, e.g. loss=train_ce."
)
@click.option(
    "--html", "html_file", type=click.Path(dir_okay=False, writable=True), help="Write a self-contained page to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema tuneclinic.diagnosis/1).")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, to paste into an issue.")
@click.option("--share", is_flag=True, help="Mask sample text, paths, host and user names.")
@click.option("--follow", is_flag=True, help="Diagnose again whenever the run has grown, until interrupted.")
@language_option
def command(
    *,
    run: tuple[str, ...],
    symptoms: tuple[str, ...],
    columns: tuple[str, ...],
    html_file: str | None,
    as_json: bool,
    as_markdown: bool,
    share: bool,
    follow: bool,
    language: Language,
) -> None:
    """Diagnose what a fine-tuning RUN left on disk.

    RUN is a folder or any of its files: log, configuration, script, data, traceback, checkpoint. "-" reads a log or a
    traceback from standard input. Exit code: 0 nothing seen, 1 a fault or an unexplained symptom, 2 nothing could be read.
    """
    _check_symptoms(symptoms, language)
    show = _Printer(language, html_file, as_json=as_json, as_markdown=as_markdown, share=share)
    with tempfile.TemporaryDirectory(prefix="tuneclinic-") as folder:
        paths = _paths(run, Path(folder), language)
        roles = _roles(columns, language)
        while True:
            before = _state(paths) if follow else {}
            code = show(_diagnose(paths, symptoms, roles, language))
            if not follow or not _grown(paths, before):
                sys.exit(code)


def _diagnose(paths: Sequence[Path], symptoms: Sequence[str], roles: dict[str, str], language: Language) -> list[Diagnosis]:
    from tuneclinic.clinic import diagnose  # noqa: PLC0415 - loads numpy and the casebook only when there is something to read

    try:
        return diagnose(*paths, symptoms=symptoms, columns=roles, progress=_progress(paths))
    except FileNotFoundError as error:
        missing = str(error.args[0])
        letter(
            language,
            Text(f"There is nothing at {missing}", f"找不到 {missing}"),
            Text(f"looked in {Path.cwd()}", f"查找目录：{Path.cwd()}"),
            Text("likely a misspelt path, or the run is on another machine", "可能是路径写错，或训练目录不在这台机器上"),
            "tuneclinic diagnose .",
        )


class _Printer:
    """Prints diagnoses in the form asked for and gives the exit code."""

    def __init__(self, language: Language, html_file: str | None, *, as_json: bool, as_markdown: bool, share: bool) -> None:
        self.language = language
        self.html_file = html_file
        self.as_json = as_json
        self.as_markdown = as_markdown
        self.share = share

    def __call__(self, diagnoses: list[Diagnosis]) -> int:
        if self.share:
            from tuneclinic.report.mask import mask  # noqa: PLC0415

            diagnoses = [mask(diagnosis) for diagnosis in diagnoses]
        click.echo(self._text(diagnoses))
        if self.html_file:
            from tuneclinic.report.html import render  # noqa: PLC0415 - loads the template engine

            Path(self.html_file).write_text(render(diagnoses, self.language), encoding="utf-8")
            click.echo(f"→ {self.html_file}", err=True)
        return exit_code(diagnoses)

    def _text(self, diagnoses: list[Diagnosis]) -> str:
        if self.as_json:
            from tuneclinic.report import json  # noqa: PLC0415

            return json.render(diagnoses, self.language)
        if self.as_markdown:
            from tuneclinic.report import markdown  # noqa: PLC0415

            return markdown.render(diagnoses, self.language)
        from tuneclinic.report import terminal  # noqa: PLC0415

        colour = sys.stdout.isatty()
        return terminal.render_all(diagnoses, self.language, colour=colour)


def exit_code(diagnoses: Sequence[Diagnosis]) -> int:
    """1 where any run has a fault or an unexplained symptom, 2 where nothing at all could be read, else 0."""
    codes = {diagnosis.exit_code for diagnosis in diagnoses}
    if 1 in codes:
        return 1
    return 0 if 0 in codes else 2


def _paths(run: tuple[str, ...], folder: Path, language: Language) -> list[Path]:
    """The paths given; standard input is written to a file first."""
    if not run and sys.stdin.isatty():
        letter(
            language,
            Text("No run was given", "没有给出训练目录或文件"),
            Text(
                "diagnose needs a folder, a log, or a traceback on standard input",
                "diagnose 需要一个目录、一份日志，或从标准输入读取报错",
            ),
            Text("for the run in this folder:", "诊断当前目录："),
            "tuneclinic diagnose .",
        )
    paths = [Path(one) for one in run if one != "-"]
    if "-" in run or not run:
        pasted = folder / "stdin.log"
        pasted.write_bytes(sys.stdin.buffer.read(STDIN_BYTES))
        paths.append(pasted)
    return paths


def _roles(columns: tuple[str, ...], language: Language) -> dict[str, str]:
    roles: dict[str, str] = {}
    for column in columns:
        role, equals, name = column.partition("=")
        if not equals or not role or not name:
            letter(
                language,
                Text(f"--column {column} names no column", f"--column {column} 没有指明列名"),
                Text("it is written ROLE=NAME", "写法是 角色=列名"),
                Text(
                    "roles are step, epoch, loss, eval_loss, grad_norm, learning_rate",
                    "角色有 step、epoch、loss、eval_loss、grad_norm、learning_rate",
                ),
                "tuneclinic diagnose metrics.csv --column loss=train_ce",
            )
        roles[role] = name
    return roles


def _check_symptoms(symptoms: tuple[str, ...], language: Language) -> None:
    if not symptoms:
        return
    from tuneclinic.triage import symptoms as all_symptoms  # noqa: PLC0415

    known = {symptom.id for symptom in all_symptoms()}
    for symptom in symptoms:
        if symptom not in known:
            letter(
                language,
                Text(f"There is no symptom called {symptom}", f"没有名为 {symptom} 的现象"),
                Text("symptoms: " + ", ".join(sorted(known)), "现象有：" + "、".join(sorted(known))),
                Text("to find one by your own words:", "用自己的话查找："),
                f"tuneclinic explain {symptom.replace('-', ' ')!r}",
            )


def _progress(paths: Sequence[Path]) -> Progress | None:
    """Shows which file is being read, on a terminal's standard error, where the reading will last."""
    from tuneclinic.probes.files import files_of  # noqa: PLC0415

    long = sum(file.size for path in paths for file in files_of(path)) >= LONG_READ
    if not (sys.stderr.isatty() and long):
        return None

    def show(name: str, number: int, total: int) -> None:
        click.echo(f"\r\x1b[K{number}/{total} {name[-60:]}", err=True, nl=number == total)

    return show


def _state(paths: Sequence[Path]) -> dict[Path, tuple[int, float]]:
    """Size and time of every file of the run."""
    from tuneclinic.probes.files import files_of  # noqa: PLC0415

    files = [file.path for path in paths for file in files_of(path)]
    return {file: (file.stat().st_size, file.stat().st_mtime) for file in files if file.exists()}


def _grown(paths: Sequence[Path], before: dict[Path, tuple[int, float]]) -> bool:
    """Waits until a file of the run has changed since `before`; False where the user interrupts."""
    try:
        while _state(paths) == before:
            time.sleep(FOLLOW_SECONDS)
    except KeyboardInterrupt:
        return False
    return True
