"""PEFT's `adapter_config.json`."""

from __future__ import annotations

from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.readers._settings import Entry, settings_of
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Adapter, Model
from tuneclinic.words import Text

BYTES = 4 << 20
"""The most of the file that is read; a rank pattern of every module of a large model has 300 kB."""
NO_ADAPTER = Text("This adapter configuration names no adapter type.", "这个 adapter 配置里没有 adapter 类型。")
SETTINGS = ("r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora")
"""Keys that are also settings of the run; the list of modules is left to `Adapter`, since saving expands `all-linear`."""


class AdapterConfig(Reader):
    """`adapter_config.json` beside the adapter's weights."""

    kind = "adapter configuration"
    precedence = 60

    def claims(self, file: SourceFile) -> float:
        """By name, or by PEFT's own keys in the head."""
        if not file.base.endswith(".json") or file.binary:
            return 0.0
        if file.base.endswith("adapter_config.json"):
            return 0.9
        return 0.6 if b'"peft_type"' in file.head and b'"target_modules"' in file.head else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The adapter, and rank, alpha and dropout as settings of the run."""
        config, text, problem = load(file, BYTES)
        if problem or not isinstance(config.get("peft_type"), str):
            return [Reading(note=problem or NO_ADAPTER)]
        kind = str(config["peft_type"])[:40].upper()
        adapter = Adapter(
            kind=kind,
            rank=_number(config.get("r", config.get("rank"))),
            alpha=_number(config.get("lora_alpha", config.get("alpha"))),
            dropout=_number(config.get("lora_dropout")),
            target_modules=_modules(config.get("target_modules")),
            modules_to_save=_names(config.get("modules_to_save")),
            base=_text(config.get("base_model_name_or_path")),
            inference_mode=config.get("inference_mode") if isinstance(config.get("inference_mode"), bool) else None,
            source=file.name,
        )
        entries = [Entry("method", kind.lower(), place(text, "peft_type", file.name), f'"peft_type": "{kind}"')]
        entries += [Entry(key, config[key], place(text, key, file.name)) for key in SETTINGS if config.get(key) is not None]
        places = {key: place(text, key, file.name) for key in ("r", "target_modules", "base_model_name_or_path") if key in config}
        model = Model(adapter=adapter, places={f"adapter.{key}": where for key, where in places.items()}, sources=(file.name,))
        known = sum(value is not None for value in (adapter.rank, adapter.alpha, adapter.target_modules, adapter.base)) + 1
        return [Reading(Evidence(settings=settings_of(entries, "", file.name), model=model), {"adapter settings": known})]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12 else None


def _text(value: Any) -> str | None:
    return value[:1000] if isinstance(value, str) and value else None


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(name)[:300] for name in value[:10_000]) if isinstance(value, list) else ()


def _modules(value: Any) -> tuple[str, ...] | str | None:
    return tuple(sorted(_names(value))) if isinstance(value, list) else _text(value)
