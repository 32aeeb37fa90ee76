"""`generation_config.json`: what the model stops on and how it samples when nothing else is said."""

from __future__ import annotations

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.readers._settings import Entry, settings_of
from tuneclinic.probes.readers.model_config import identifiers
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Tokenizer
from tuneclinic.words import Text

BYTES = 1 << 20
"""The most of the file that is read."""
SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty", "max_new_tokens", "do_sample")
"""Keys that are settings of generation; `max_length` here counts prompt and answer and is left out."""
EMPTY = Text(
    "This generation configuration sets neither stop ids nor sampling.",
    "这个生成配置既没有设停止 token，也没有设采样参数。",
)


class GenerationConfig(Reader):
    """`generation_config.json` of a model or of a checkpoint."""

    kind = "generation configuration"
    precedence = 70

    def claims(self, file: SourceFile) -> float:
        """By name."""
        return 0.9 if file.base.endswith("generation_config.json") and not file.binary else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Stop ids for the tokenizer, sampling as settings."""
        config, text, problem = load(file, BYTES)
        if problem:
            return [Reading(note=problem)]
        stops = identifiers(config.get("eos_token_id"))
        named = {key: identifiers(config.get(f"{key}_token_id"))[:1] for key in ("bos", "eos", "pad")}
        entries = [
            Entry(key, config[key], place(text, key, file.name))
            for key in SAMPLING
            if isinstance(config.get(key), (int, float)) and abs(config[key]) < 1e9
        ]
        if stops:
            entries.append(Entry("eos_token_id", stops, place(text, "eos_token_id", file.name)))
        settings = settings_of(entries, "", file.name)
        understood = {
            name: count for name, count in (("stop ids", len(stops)), ("sampling settings", len(entries) - bool(stops))) if count
        }
        if not understood and not any(named.values()):
            return [Reading(note=EMPTY)]
        tokenizer = Tokenizer(
            generation_eos=stops or None,
            places={"generation_eos": place(text, "eos_token_id", file.name)} if stops else {},
            sources=(file.name,),
        )
        return [Reading(Evidence(settings=settings if entries else None, tokenizer=tokenizer), understood or {"token ids": 1})]
