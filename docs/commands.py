"""Writes docs/commands.md from the commands' own help: `python docs/commands.py`."""

from __future__ import annotations

from pathlib import Path

import click

from tuneclinic.cli import main

HEAD = "# Commands\n\nMade from the commands' own help by `python docs/commands.py`; a test holds the two together.\n"


def page() -> str:
    """The page as it should stand."""
    context = click.Context(main, info_name="tuneclinic", max_content_width=80, terminal_width=80)
    parts = [HEAD, _block(main, context)]
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=context, max_content_width=80, terminal_width=80)
            parts.append(f"## {name}\n\n{_block(command, inner)}")
    return "\n".join(parts)


def _block(command: click.Command, context: click.Context) -> str:
    return f"```text\n{command.get_help(context).strip()}\n```\n"


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(page(), encoding="utf-8")
