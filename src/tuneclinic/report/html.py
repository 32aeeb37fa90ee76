"""The diagnosis as one self-contained HTML page: no script, no network, light and dark, with the loss picture.

Everything read from a run is untrusted: the template engine escapes all of it, and the picture is drawn from numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneclinic.diagnosis import Diagnosis
from tuneclinic.report.picture import draw
from tuneclinic.report.story import tell
from tuneclinic.version import __version__
from tuneclinic.words import Language


def render(diagnoses: Sequence[Diagnosis], language: Language = "en") -> str:
    """The page for one or several diagnoses."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - costs 70 ms, used for pages only

    engine = Environment(
        loader=PackageLoader("tuneclinic.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    stories = [(tell(diagnosis, language), draw(diagnosis)) for diagnosis in diagnoses]
    return engine.get_template("diagnosis.html").render(stories=stories, language=language, version=__version__)
