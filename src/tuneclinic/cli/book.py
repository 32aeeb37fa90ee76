"""`tuneclinic book`: list and filter the casebook, or write it out."""

from __future__ import annotations

from pathlib import Path

import click

from tuneclinic.cli._options import language_option
from tuneclinic.words import Language, say


@click.command()
@click.option("--symptom", help="Only cases that show as this symptom, ranked.")
@click.option(
    "--folder",
    help="Only cases of this folder: data, learning, numerics, memory, distributed, evaluation, inference, environment.",
)
@click.option("--needs", help="Only cases that read this section of the evidence, e.g. settings.")
@click.option("--cards", "cards_folder", type=click.Path(file_okay=False), help="Write every card as Markdown into this folder.")
@language_option
def command(*, symptom: str | None, folder: str | None, needs: str | None, cards_folder: str | None, language: Language) -> None:
    """List the casebook: every failure mode that is known, and what each needs to be examined."""
    from tuneclinic.report import phrases  # noqa: PLC0415 - the casebook is loaded only when asked for
    from tuneclinic.report.cards import case_card, listing, suspects  # noqa: PLC0415
    from tuneclinic.triage import cases  # noqa: PLC0415

    book = [case for case in cases() if (not folder or _folder(case) == folder) and (not needs or needs in case.needs)]
    if symptom:
        book = [case for _, case in suspects(symptom, book)]
    if cards_folder:
        target = Path(cards_folder)
        target.mkdir(parents=True, exist_ok=True)
        for case in book:
            (target / f"{case.id}.md").write_text(f"```text\n{case_card(case, language)}\n```\n", encoding="utf-8")
        click.echo(f"→ {target} ({len(book)})", err=True)
        return
    for name in sorted({_folder(case) for case in book}) if not symptom else [""]:
        if name:
            click.echo(click.style(name, bold=True))
        for line in listing((f"  {case.id}", case.card(language).title) for case in book if not name or _folder(case) == name):
            click.echo(line)
    click.echo(say(phrases.BOOK_TOTAL, language).format(count=len(book)))


def _folder(case: object) -> str:
    return type(case).__module__.split(".")[-2]
