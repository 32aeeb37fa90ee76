"""A long fuzz run over every reader: `python bench/fuzz.py [SECONDS [SAMPLE…]]`, a minute of CPU a sample by default.

Every seed damages a sample file; a reader that raises or hangs ends the run with the seed. Seeds that led to an answer of a shape not
seen before are kept in tests/fuzz/seeds.json, which the test suite replays.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from mutate import damaged  # noqa: E402
from samples import SAMPLES  # noqa: E402

from tuneclinic.probes.gather import choose  # noqa: E402
from tuneclinic.probes.reading import SourceFile  # noqa: E402

KEPT = 25
"""Seeds kept a sample: replaying all takes some seconds."""


def shape(readings: list) -> tuple:
    """What kind of answer this is, without its numbers."""
    return tuple((kind, tuple(sorted(one.understood)), tuple(sorted(one.skipped)), bool(one.note)) for kind, one in readings)


def fuzz(name: str, seconds: float, folder: Path) -> tuple[list[int], int, float]:
    """Seeds worth keeping, how many were tried, and the slowest answer in CPU seconds."""
    kept: dict[tuple, int] = {}
    seed, slowest, ends = 0, 0.0, time.process_time() + seconds
    path = folder / name
    while time.process_time() < ends:
        path.write_bytes(damaged(SAMPLES[name], seed))
        file = SourceFile(path, name)
        started = time.process_time()
        try:
            answer = shape([(reader.kind, reading) for reader in choose(file) for reading in reader.read(file)])
        except Exception:
            print(f"{name}: seed {seed}")
            raise
        slowest = max(slowest, time.process_time() - started)
        kept.setdefault(answer, seed)
        seed += 1
    return sorted(kept.values())[:KEPT], seed, slowest


def main() -> None:
    """Fuzzes every sample and writes the kept seeds."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    target = ROOT / "tests" / "fuzz" / "seeds.json"
    seeds = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or SAMPLES:
            found, tried, slowest = fuzz(name, seconds, Path(folder))
            seeds[name] = sorted({*seeds.get(name, []), *found})
            print(f"{name:40} {tried:>8,} inputs, {len(found):>3} kept, slowest {slowest:.3f} s", flush=True)
            target.write_text(
                json.dumps(seeds, indent=None, separators=(", ", ": ")).replace("], ", "],\n ") + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
