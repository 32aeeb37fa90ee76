"""The text of `nvidia-smi`: driver, CUDA, cards, their memory and who else is on them."""

from __future__ import annotations

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Environment
from tuneclinic.words import Text

BYTES = 1 << 20
"""The most of the file that is read: one snapshot has 5 kB, a watch of it is cut after 200."""
LINES = 20_000
"""How many lines are read."""
GPUS = 1024
"""How many cards, and how many processes, are kept."""
NOTHING = Text("No card was found in this nvidia-smi output.", "这份 nvidia-smi 输出里没有找到显卡。")

_SIGN = pattern(rb"NVIDIA-SMI\s+\d+|Driver Version\s*:\s*\d+|memory\.total \[MiB\]")
_DRIVER = pattern(r"Driver Version\s*:\s*([\d.]{3,20})")
_CUDA = pattern(r"CUDA Version\s*:\s*([\d.]{1,10})")
_CARD = pattern(
    r"\|\s+(\d{1,4})\s+((?:NVIDIA|Tesla|Quadro|GeForce|TITAN|RTX|A\d|H\d|L\d)[^|]{0,60}?)\s*(?:On|Off|Default|\||\.\.\.)"
)
_MEMORY = pattern(r"(\d{1,7})\s*MiB\s*/\s*(\d{1,7})\s*MiB")
_PROCESS = pattern(r"\|\s+(\d{1,4})\s+\S+\s+\S+\s+(\d{1,8})\s+[CGM+]+\s+(\S[^|]*?)\s+(\d{1,7})\s*MiB\s*\|")
_OLD_PROCESS = pattern(r"\|\s+(\d{1,4})\s+(\d{1,8})\s+[CGM+]+\s+(\S[^|]*?)\s+(\d{1,7})\s*MiB\s*\|")


class NvidiaSmi(Reader):
    """The output of nvidia-smi in a text file."""

    kind = "nvidia-smi"
    precedence = 55

    def claims(self, file: SourceFile) -> float:
        """By the table's own words in the first lines."""
        if file.binary or not file.base.endswith((".txt", ".log", ".out", "nvidia-smi", "nvidia_smi")):
            return 0.0
        named = "nvidia" in file.base and "smi" in file.base
        if not _SIGN.search(file.head[:2048]):
            return 0.0
        return 0.9 if named else 0.6 if file.size < BYTES // 8 and b"MiB /" in file.head[:4096] else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Driver, CUDA version, cards, the memory of the first card in GiB, and the processes on it."""
        try:
            text = file.text(BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        lines = [line[:400] for line in text.split("\n", LINES)[:LINES]]
        cards: dict[str, str] = {}
        places: dict[str, str] = {}
        total: float | None = None
        used: float | None = None
        processes: list[str] = []
        for number, line in enumerate(lines, 1):
            card = _CARD.search(line)
            if card and card[1] not in cards and len(cards) < GPUS:
                cards[card[1]] = card[2].strip(" .")
                places.setdefault("gpus", f"{file.name}:{number}")
            memory = _MEMORY.search(line)
            if memory and total is None:
                total = int(memory[2]) / 1024
                places["gpu_memory"] = f"{file.name}:{number}"
                used = int(memory[1]) / 1024
            process = _PROCESS.search(line) or _OLD_PROCESS.search(line)
            if process:
                processes.append(f"{process[3][:80]} ({process[4]} MiB, GPU {process[1]})")
                places.setdefault("gpu_processes", f"{file.name}:{number}")
        driver, cuda = _DRIVER.search(text), _CUDA.search(text)
        environment = Environment(
            driver=driver[1] if driver else None,
            cuda=cuda[1] if cuda else None,
            gpus=tuple(cards.values()),
            gpu_memory=total,
            gpu_memory_used=used,
            gpu_processes=tuple(processes[:GPUS]),
            device="cuda" if cards else None,
            places=places,
        )
        understood = {name: count for name, count in (("cards", len(cards)), ("processes", len(processes))) if count}
        if not understood and driver is None:
            return [Reading(note=NOTHING)]
        return [Reading(Evidence(environment=environment), understood or {"versions": 1})]
