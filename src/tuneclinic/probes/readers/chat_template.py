"""Chat templates in files of their own: `chat_template.jinja`, `chat_template.json`, and any Jinja file over messages."""

from __future__ import annotations

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.readers._settings import stand_in
from tuneclinic.probes.readers.tokenizer_config import TEMPLATE, reading, template_of
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Tokenizer
from tuneclinic.words import Text

BYTES = 4 << 20
"""The most of the file that is read."""
JINJA = pattern(rb"\{[%{#]")
NO_TEMPLATE = Text("This file holds no chat template.", "这个文件里没有 chat template。")


class ChatTemplate(Reader):
    """A chat template in a file of its own."""

    kind = "chat template"
    precedence = 25

    def claims(self, file: SourceFile) -> float:
        """By name, or a Jinja file that goes through messages."""
        if file.binary:
            return 0.0
        if file.base in {"chat_template.jinja", "chat_template.jinja2", "chat_template.json"}:
            return 0.9
        if file.base.endswith((".jinja", ".jinja2", ".j2")):
            return 0.6 if b"messages" in file.head and JINJA.search(file.head) else 0.3
        return 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The template's text; it is parsed by who renders it, not here."""
        if file.base.endswith(".json"):
            config, text, problem = load(file, BYTES)
            template, named = template_of(config.get("chat_template"))
            where = place(text, "chat_template", file.name)
            if problem or template is None:
                return [Reading(note=problem or NO_TEMPLATE)]
        else:
            try:
                content = file.text(BYTES)
            except (OSError, EOFError) as error:
                return [Reading(note=type(error).__name__)]
            if stand_in(content) or not content.strip() or not JINJA.search(content.encode(errors="replace")):
                return [Reading(note=stand_in(content) or NO_TEMPLATE)]
            template, named, where = content[:TEMPLATE], (), f"{file.name}:1"
        tokenizer = Tokenizer(template=template, templates=named, places={"template": where}, sources=(file.name,))
        return [reading(tokenizer, {"chat templates": max(len(named), 1)})]
