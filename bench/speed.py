"""How fast text logs are read: a log of 1,000,000 lines of which a tenth are metrics, and one of nothing else.

Prints megabytes a second of wall-clock and of processor time, and the ratio to a bare `for line in file` loop over the same file
in the same process, which says the same on a slow machine and on a fast one. Results go to `bench/results/speed.json`.

    python bench/speed.py [--lines 1000000]
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuneclinic.probes.readers.text_log import TextLogReader
from tuneclinic.probes.reading import SourceFile

RESULTS = Path(__file__).parent / "results" / "speed.json"
WANTED = {"a tenth are metrics": 50.0, "all are metrics": 15.0}
"""MB/s that are asked for on a free core."""


def metric(number: int, rng: random.Random) -> str:
    """A row of the Trainer."""
    loss, norm = 2.0 * 0.999 ** (number / 50) + rng.random() / 10, rng.random()
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm!r}, 'learning_rate': {2e-5 * (1 - number / 1e6)!r}, 'epoch': {number / 300:.2f}}}\n"


def other(number: int, rng: random.Random) -> str:
    """What stands between the rows: a logger's lines, bars, a warning."""
    kind = number % 9
    clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d},{number % 1000:03d}"
    if kind < 4:
        return (
            f"2024-05-01 {clock} - INFO - dataset.loader - worker {number % 8} fetched shard {number} in {rng.random():.3f} s\n"
        )
    if kind < 6:
        return f" {number // 10_000}%|{'#' * (number // 100_000):10s}| {number}/1000000 [{clock[:5]}<{clock[:5]}, {rng.random() * 10:.2f}it/s]\n"
    if kind < 8:
        return f"[rank{number % 4}]:[INFO] {clock} checkpoint shard {number} of layer {number % 32} written to /data/out/step_{number}\n"
    return f"[WARNING] sequence of {number % 5000} tokens is longer than the maximum of 2048 and was cut\n"


def write(path: Path, lines: int, every: int) -> None:
    """A log in which every `every`-th line is a metric row."""
    rng = random.Random(1)  # noqa: S311 - a repeatable log, no secret
    with path.open("w") as stream:
        stream.writelines(metric(number, rng) if number % every == 0 else other(number, rng) for number in range(lines))


def timed(work: Callable[[], object]) -> tuple[float, float, object]:
    """Wall-clock seconds, processor seconds and what came of it."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def bare(path: Path) -> int:
    """The least that reading lines can cost in Python."""
    count = 0
    with path.open("rb") as stream:
        for _ in stream:
            count += 1
    return count


def measure(lines: int) -> Iterator[dict[str, object]]:
    """Both logs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, every in (("a tenth are metrics", 10), ("all are metrics", 1)):
            path = Path(folder) / f"{every}.log"
            write(path, lines, every)
            size = path.stat().st_size / 1e6
            _, loop, _ = timed(lambda path=path: bare(path))
            wall, cpu, readings = timed(lambda path=path: TextLogReader().read(SourceFile(path, "train.log")))
            understood = readings[0].understood  # type: ignore[index]
            assert understood["train rows"] == -(-lines // every)
            yield {
                "log": name, "lines": lines, "megabytes": round(size, 1), "mb_per_second_wall": round(size / wall, 1), "mb_per_second_cpu": round(size / cpu, 1),
                "times_a_bare_line_loop": round(cpu / loop, 1), "wanted_mb_per_second": WANTED[name],
                "peak_resident_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            }  # fmt: skip


def main() -> int:
    """Measures, prints and writes; fails where a wanted speed was missed in processor time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    results = list(measure(parser.parse_args().lines))
    for result in results:
        print(f"{result['log']:22s} {result['megabytes']:8} MB  {result['mb_per_second_wall']:6} MB/s wall  {result['mb_per_second_cpu']:6} MB/s cpu  "
              f"{result['times_a_bare_line_loop']} x a bare line loop  peak {result['peak_resident_megabytes']} MB")  # fmt: skip
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"text_log": results, "python": platform.python_version()}, indent=1) + "\n")
    return 0 if all(result["mb_per_second_cpu"] >= result["wanted_mb_per_second"] for result in results) else 1  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
