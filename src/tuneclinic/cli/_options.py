"""Options and letters that verbs share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from tuneclinic.words import LANGUAGES, Language, Text, language_of, say

if TYPE_CHECKING:
    from collections.abc import Callable


def language_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--lang`, by default the locale's language."""
    return click.option(
        "--lang", "language", type=click.Choice(LANGUAGES), default=None, help="Language of the report (default: the locale's).",
        callback=lambda _context, _parameter, value: cast("Language", value or language_of()),
    )(function)  # fmt: skip


def letter(language: Language, what: Text, looked: Text | str, cause: Text, command: str) -> NoReturn:
    """Ends with exit code 2 and a letter: what failed, where it looked, the likely cause, a command to paste."""
    for line in (say(what, language), f"  {say(looked, language)}", f"  {say(cause, language)}", f"  $ {command}"):
        click.echo(line, err=True)
    sys.exit(2)
