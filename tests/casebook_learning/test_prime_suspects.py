"""Generated runs with one fault each: the case is named first, at several seeds of noise."""

import numpy as np
import pytest

from tuneclinic.casebook.learning import _examples as make
from tuneclinic.evidence import Evidence
from tuneclinic.triage import examine

NAN = float("nan")
ROWS = 200


def noise(seed, size, points=ROWS):
    return np.exp(np.random.default_rng(seed).normal(0, size, points))


def learns(end=0.9):
    return end + (2.0 - end) * np.exp(-4 * np.arange(ROWS) / ROWS)


def run(seed, loss, size=0.05, **values):
    return make.ran(loss=np.asarray(loss) * noise(seed, size, len(loss)), **values)


def turns(at):
    return (range(20, 201, 20), [1.6 - 0.04 * i if i < at else 1.6 - 0.04 * at + 0.07 * (i - at) for i in range(10)])


def breaks(seed, *, climbs):
    at = 100 + 5 * seed
    norms = noise(seed, 0.3)
    if climbs:
        norms[at - 4 : at] *= [4, 12, 40, 100]
    return {"loss": make.then(learns() * noise(seed, 0.05), NAN, at), "grad_norm": make.then(norms, NAN, at)}


def lora(rate=2e-4, **values):
    return make.configured(method="lora", learning_rate=rate, lora_rank=16, **values)


RATE = make.peaked()
FAULTS = {
    "lr-too-high: diverges": lambda seed: Evidence(
        settings=lora(2e-3), metrics=run(seed, make.blows_up(at=20 + 5 * seed), learning_rate=make.peaked(peak=2e-3))
    ),
    "lr-too-high: log alone": lambda seed: Evidence(metrics=run(seed, make.blows_up(at=20 + 5 * seed))),
    "lr-too-high: swings": lambda seed: Evidence(
        settings=lora(3e-3),
        metrics=run(seed, 1.6 + 0.6 * np.sin(np.arange(ROWS) / (3 + 0.3 * seed)), learning_rate=make.peaked(peak=3e-3)),
    ),
    "lr-too-high: NaN after climbing norms": lambda seed: Evidence(
        settings=lora(2e-3, bf16=True), metrics=make.ran(**breaks(seed, climbs=True), learning_rate=make.peaked(peak=2e-3))
    ),
    "fp16-overflow": lambda seed: Evidence(
        settings=lora(fp16=True), metrics=make.ran(**breaks(seed, climbs=False), learning_rate=RATE)
    ),
    "lr-too-low": lambda seed: Evidence(
        settings=lora(1e-6),
        metrics=run(seed, np.full(ROWS, 2.1), grad_norm=noise(seed, 0.4), learning_rate=make.peaked(peak=1e-6)),
    ),
    "no-warmup": lambda seed: Evidence(
        settings=make.configured(method="full", learning_rate=2e-5, warmup_ratio=0.0),
        metrics=run(seed, make.blows_up(at=6), learning_rate=make.peaked(peak=2e-5, warmup=0)),
    ),
    "schedule-runs-dry": lambda seed: Evidence(
        settings=lora(), metrics=run(seed, np.maximum(learns(), learns()[60]), learning_rate=make.then(RATE, 0.0, 60))
    ),
    "nothing-trainable": lambda seed: Evidence(
        settings=lora(), metrics=make.ran(loss=np.tile(1.2 * noise(seed, 0.2, 40), 5), learning_rate=RATE)
    ),
    "gradient-chain-broken": lambda seed: Evidence(
        settings=lora(),
        model=make.modelled(trainable=1e7),
        metrics=run(seed, np.full(ROWS, 2.2), grad_norm=np.zeros(ROWS), learning_rate=RATE),
    ),
    "optimizer-misses-parameters": lambda seed: Evidence(
        settings=lora(),
        metrics=make.ran(
            loss=np.tile(1.2 * noise(seed, 0.2, 40), 5), grad_norm=np.tile(noise(seed + 1, 0.2, 40), 5), learning_rate=RATE
        ),
    ),
    "loss-is-plausible": lambda seed: Evidence(
        settings=lora(), metrics=run(seed, np.full(ROWS, 1.1), grad_norm=noise(seed, 0.3), learning_rate=RATE)
    ),
    "batch-too-small": lambda seed: Evidence(
        settings=lora(batch_per_device=1, accumulation=1), metrics=run(seed, learns(1.4), size=0.9, learning_rate=RATE)
    ),
    "too-many-epochs": lambda seed: Evidence(
        settings=lora(epochs=8), metrics=run(seed, learns(0.1), eval_loss=turns(3), learning_rate=RATE)
    ),
    "too-little-data": lambda seed: Evidence(
        settings=lora(epochs=3), data=make.counted(80), metrics=run(seed, learns(0.1), eval_loss=turns(3), learning_rate=RATE)
    ),
    "loss-summed-not-averaged": lambda seed: Evidence(
        settings=lora(), metrics=run(seed, 2000 * make.blows_up(at=40), learning_rate=RATE)
    ),
    "optimizer-state-lost": lambda _: Evidence(settings=make.configured(resume="ckpt"), metrics=make.resumed(factor=1.5)),
    "sampler-position-lost": lambda _: Evidence(
        settings=make.configured(resume="ckpt"), metrics=make.resumed(factor=0.6, back=0.8)
    ),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named_first(name, seed):
    diagnosis = examine(FAULTS[name](seed))
    spoken = [finding.case for finding in diagnosis.findings if finding.verdict in {"confirmed", "suspected"}]
    assert spoken
    assert spoken[0] == name.split(":")[0]


def test_a_loss_held_at_uniform_is_not_blamed_on_the_weights_alone():
    """Weights that were not loaded train all the same: what holds the loss at ln V is that nothing moves."""
    metrics = run(1, np.full(ROWS, 10.4), size=0.004, learning_rate=RATE)
    diagnosis = examine(Evidence(settings=lora(), model=make.modelled(vocabulary=32000), metrics=metrics))
    spoken = [finding.case for finding in diagnosis.findings if finding.verdict in {"confirmed", "suspected"}]
    assert "nothing-trainable" in spoken
    assert spoken[0] != "weights-not-loaded"
