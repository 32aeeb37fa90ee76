"""`tuneclinic explain`: the card of a case or a symptom, found by id, by own words or by a pasted log line."""

from __future__ import annotations

import sys
from typing import Any

import click

from tuneclinic.cli._options import language_option
from tuneclinic.words import Language, say


@click.command()
@click.argument("words", nargs=-1, required=True)
@language_option
def command(words: tuple[str, ...], language: Language) -> None:
    """Explain a fault or a symptom.

    WORDS is an id (end-token-masked), a symptom (never-stops), your own words in English or Chinese, or a pasted line of a
    log or traceback.
    """
    from tuneclinic.case import Case  # noqa: PLC0415 - as the next ones
    from tuneclinic.report import phrases  # noqa: PLC0415 - the casebook is loaded only when asked for
    from tuneclinic.report.cards import case_card, listing, symptom_card  # noqa: PLC0415
    from tuneclinic.search import find  # noqa: PLC0415
    from tuneclinic.triage import cases, symptoms  # noqa: PLC0415

    text = " ".join(words)
    everything: list[Any] = [*symptoms(), *cases()]
    known = {one.id: one for one in everything}
    hits = find(text, limit=6)
    if not hits:
        click.echo(say(phrases.NO_HIT, language), err=True)
        sys.exit(2)
    first, rest = known[hits[0].id], [known[hit.id] for hit in hits[1:]]
    card = case_card(first, language) if isinstance(first, Case) else symptom_card(first, cases(), language)
    click.echo(card)
    if rest and text not in known:
        click.echo()
        click.echo(say(phrases.ALSO, language))
        for line in listing((f"  {one.id}", one.card(language).title) for one in rest):
            click.echo(line)
