"""`preprocessor_config.json`: how large a picture the model's own processor lets through."""

from __future__ import annotations

import math
from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Model
from tuneclinic.words import Text

BYTES = 1 << 20
"""The most of the file that is read; public ones have a few hundred bytes."""
LARGEST = 1e12
"""Pixels above which a number is no size of a picture."""
NO_SIZE = Text("This processor's configuration sets no size of pictures.", "这个 processor 配置没有写图片尺寸。")


class PreprocessorConfig(Reader):
    """`preprocessor_config.json` of a vision-language model."""

    kind = "image processor configuration"
    precedence = 70

    def claims(self, file: SourceFile) -> float:
        """By name; a speech model's file has no size of pictures and says so when read."""
        return 0.9 if file.base.endswith("preprocessor_config.json") and not file.binary else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The largest area in pixels: `max_pixels`, the `longest_edge` that Qwen keeps an area in, or height times width."""
        config, text, problem = load(file, BYTES)
        if problem:
            return [Reading(note=problem)]
        key, pixels = _limit(config)
        if pixels is None:
            return [Reading(note=NO_SIZE)]
        model = Model(image_max_pixels=pixels, places={"image_max_pixels": place(text, key, file.name)}, sources=(file.name,))
        return [Reading(Evidence(model=model), {"size of pictures": 1})]


def _limit(config: dict[str, Any]) -> tuple[str, float | None]:
    given = _number(config.get("max_pixels"))
    if given is not None:
        return "max_pixels", given
    size = config.get("size")
    if isinstance(size, dict):
        sides = [_number(size.get(name)) for name in ("height", "width")]
        if sides[0] and sides[1]:
            return "size", sides[0] * sides[1]
        if "Qwen" in str(config.get("image_processor_type", "")):
            return "longest_edge", _number(size.get("longest_edge"))
    return "max_pixels", None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 1 <= number < LARGEST else None
