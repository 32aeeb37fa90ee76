"""The command line: one file a verb; each parses, calls one library function and prints."""

from __future__ import annotations

import importlib
import os
import pkgutil

# numpy's linear algebra starts a thread a core when it is imported; we never use it, and starting it costs more CPU than a diagnosis
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import click

from tuneclinic.version import __version__


class Verbs(click.Group):
    """Verbs found as modules of this folder and imported only when they are called."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """The names of all verbs."""
        return sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """The verb called `name`, None where there is none."""
        if name not in self.list_commands(_context):
            return None
        command = importlib.import_module(f"{__name__}.{name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"{name} defines no command")
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="tuneclinic")
def main() -> None:
    """Finds out why a fine-tuning run went wrong, proves it, and says what to change."""
