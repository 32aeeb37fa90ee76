"""Training configurations in YAML: axolotl, LLaMA-Factory, torchtune, accelerate, ms-swift, and whatever has the usual keys."""

from __future__ import annotations

from tuneclinic.patterns import pattern
from tuneclinic.probes.frameworks import framework_of
from tuneclinic.probes.readers._settings import entries_of, named, reading_of, settings_of, stand_in
from tuneclinic.probes.readers._tree import DOCUMENT_BYTES, flat
from tuneclinic.probes.readers._yaml_tree import yaml_tree
from tuneclinic.probes.reading import Reader, Reading, SourceFile

EXACT = ("llamafactory_args.yaml", "training_args.yaml", "llamaboard_config.yaml", "accelerate_config.yaml", "hparams.yaml")
"""Names that only a training framework writes."""
FEWEST_KEYS = 3
"""Settings that a file must hold to be taken for a configuration by its keys alone; a compose or conda file has none."""
_KEY = pattern(r"(?m)^[ ]{0,8}([A-Za-z_][\w.-]{0,60})[ ]?:(?=\s|$)")
_ACCELERATE = {"distributed_type", "compute_environment"}


class YamlSettings(Reader):
    """YAML configurations of a training run."""

    kind = "configuration (YAML)"
    precedence = 30

    def claims(self, file: SourceFile) -> float:
        """By name for files that only a trainer writes, else by at least three known keys in the head."""
        if not file.base.endswith((".yaml", ".yml")) or file.binary:
            return 0.0
        if file.base.endswith(EXACT):
            return 0.9
        keys = set(_KEY.findall(file.head_text)) if b":" in file.head else set()
        if keys & _ACCELERATE or sum(named(key, "") is not None for key in keys) >= FEWEST_KEYS:
            return 0.6
        return 0.3 if stand_in(file.head_text) else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The settings with their lines; `why` of a parse error in the note."""
        try:
            text = file.text(DOCUMENT_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        pointer = stand_in(text)
        if pointer:
            return [Reading(note=pointer)]
        root, why = yaml_tree(text)
        if root is None or not isinstance(root.value, dict):
            return [reading_of(settings_of((), "", file.name), why)]
        framework = framework_of(key for key, _ in flat(root))
        return [reading_of(settings_of(entries_of(root, file.name), framework, file.name), why)]
