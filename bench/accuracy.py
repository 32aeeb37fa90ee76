"""How often the diagnosis is right: generated healthy runs, generated faults, and the public runs beside the checkout.

Run as `python bench/accuracy.py [--seeds 30] [--healthy 300]`; prints tables and keeps `bench/results/accuracy.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import corpus
from curves import Made, healthy
from faults import FAULTS, faulty
from tuneclinic.diagnosis import Diagnosis
from tuneclinic.triage import examine

RESULTS = Path(__file__).parent / "results" / "accuracy.json"


def suspects(diagnosis: Diagnosis) -> list[str]:
    """Faults in order of suspicion."""
    return [f.case for f in diagnosis.findings if f.verdict in {"confirmed", "suspected"} and f.kind == "fault"]


def named(diagnosis: Diagnosis) -> list[str]:
    """Faults in order of suspicion, and benign explanations that are confirmed, in the diagnosis's own order."""
    return [f.case for f in diagnosis.findings if f.verdict == "confirmed" or (f.verdict == "suspected" and f.kind == "fault")]


def alarms(diagnosis: Diagnosis) -> list[str]:
    """Symptoms seen or suspected, and faults confirmed or suspected, in a run that has none."""
    names = [s.symptom for s in diagnosis.sightings if s.verdict in {"confirmed", "suspected"}]
    return names + [f"case {case}" for case in suspects(diagnosis)]


def score_fault(name: str, seeds: int) -> dict[str, Any]:
    """Recall of the symptom, prime and top-3 hits of one kind."""
    seen = prime = top = 0
    first: Counter[str] = Counter()
    for made in faulty(name, seeds):
        diagnosis = examine(made.evidence, made.kind)
        seen += bool({s.symptom for s in diagnosis.seen} & set(made.symptoms))
        ranked = named(diagnosis)
        first[ranked[0] if ranked else "none"] += 1
        prime += bool(ranked) and ranked[0] in made.suspects
        top += bool(set(ranked[:3]) & set(made.suspects))
    return {"seeds": seeds, "symptom": seen, "prime": prime, "top3": top, "first": dict(first.most_common(4))}


def score_healthy(made: list[Made]) -> dict[str, Any]:
    """False alarms over healthy runs, by what was alarmed."""
    wrong: Counter[str] = Counter()
    runs: list[str] = []
    for one in made:
        found = alarms(examine(one.evidence, one.kind))
        if found:
            runs.append(f"{one.kind} seed {one.seed}: {', '.join(found)}")
            wrong.update(found)
    return {"runs": len(made), "alarmed": len(runs), "by": dict(wrong), "which": runs[:50]}


def score_corpus() -> dict[str, Any]:
    """Recall per labelled symptom, and alarms where the label forbids them."""
    reason = corpus.absent()
    if reason:
        return {"skipped": reason}
    wanted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    missed, false, quiet = [], [], 0
    for run in corpus.labelled():
        if run.file in corpus.WRONG_LABELS:
            continue
        quiet += run.quiet
        for symptom in run.symptoms:
            wanted[symptom] += 1
            found[symptom] += symptom in run.seen
            if symptom not in run.seen:
                missed.append(f"{run.file}: {symptom}")
        loud = (run.seen | run.hinted) if run.quiet else run.seen & set(run.must_not)
        false.extend(f"{run.file}: {symptom}" for symptom in sorted(loud))
    recall = {symptom: [found[symptom], wanted[symptom]] for symptom in sorted(wanted)}
    return {
        "quiet_runs": quiet,
        "false_alarms": false,
        "recall": recall,
        "found": sum(found.values()),
        "wanted": sum(wanted.values()),
        "missed": missed,
        "labels_not_used": corpus.WRONG_LABELS,
    }


def show(result: dict[str, Any]) -> None:
    """The tables."""
    print(f"{'generated fault':28}{'symptom':>9}{'prime':>8}{'top 3':>8}   first, most often")
    for name, row in result["faults"].items():
        seeds = row["seeds"]
        often = ", ".join(f"{case} {count}" for case, count in row["first"].items())
        print(f"{name:28}{row['symptom']:>6}/{seeds}{row['prime']:>5}/{seeds}{row['top3']:>5}/{seeds}   {often}")
    total = result["total"]
    print(f"{'all':28}{total['symptom']:>8.1%}{total['prime']:>8.1%}{total['top3']:>8.1%}")
    made = result["healthy"]
    print(f"\nhealthy, generated: {made['alarmed']} of {made['runs']} alarmed {made['by'] or ''}")
    for line in made["which"][:20]:
        print(f"  {line}")
    real = result["corpus"]
    if "skipped" in real:
        print(f"\npublic runs: skipped, {real['skipped']}")
        return
    print(f"\npublic runs: {real['found']} of {real['wanted']} labelled symptoms seen; {len(real['false_alarms'])} false alarms")
    for symptom, (found, wanted) in real["recall"].items():
        print(f"  {symptom:22}{found:>3} of {wanted}")
    for line in real["missed"]:
        print(f"  missed  {line}")
    for line in real["false_alarms"]:
        print(f"  alarm   {line}")


def main() -> None:
    """Measures, prints, keeps."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=30, help="runs of each generated fault")
    options.add_argument("--healthy", type=int, default=300, help="generated healthy runs")
    options.add_argument("--only", default="", help="kinds of faults whose name holds this")
    options.add_argument("--keep", type=Path, default=RESULTS)
    given = options.parse_args()
    faults = {name: score_fault(name, given.seeds) for name in FAULTS if given.only in name}
    runs = sum(row["seeds"] for row in faults.values())
    total = {key: sum(row[key] for row in faults.values()) / max(1, runs) for key in ("symptom", "prime", "top3")}
    result = {"faults": faults, "total": total, "healthy": score_healthy(healthy(given.healthy)), "corpus": score_corpus()}
    show(result)
    if not given.only:
        given.keep.parent.mkdir(exist_ok=True)
        given.keep.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
