"""What a log shows, and the traps: each pair differs in one fact."""

import numpy as np
import pytest

from tuneclinic.curves import shape
from tuneclinic.sections import Metrics, Series

ROWS = np.arange(200)


def noise(size, count=200, seed=0):
    return np.exp(size * np.random.default_rng(seed).standard_normal(count))


def falling(first=2.2, last=1.1, count=200, size=0.08):
    return (last + (first - last) * np.exp(-np.arange(count) / (0.2 * count))) * noise(size, count)


def shaped(vocabulary=None, kind="", **series):
    return shape(Metrics({name.replace("__", "/"): Series.of(values) for name, values in series.items()}, kind=kind), vocabulary)


def test_a_healthy_run_shows_nothing():
    found = shaped(
        loss=falling(), grad_norm=2 * noise(0.3), learning_rate=np.linspace(2e-4, 0, 200), eval_loss=[1.5, 1.3, 1.2, 1.15, 1.14]
    )
    assert found.points == 200
    assert found.drop == pytest.approx(0.5, abs=0.1)
    assert found.relative_noise == pytest.approx(0.08, abs=0.02)
    assert not any((found.nan_from, found.diverged_from, found.no_learning, found.oscillates, found.near_zero_from))
    assert not any((found.overfits_from, found.eval_erratic, found.dead_learning_rate_from, found.grad_norm_creeps))


def test_a_filtered_nan_is_told_from_masked_labels_by_the_gradient_norm():
    losses = [1.66, *[0.0] * 19]
    hidden = shaped(loss=losses, grad_norm=[np.nan] * 20)
    masked = shaped(loss=[0.0] * 20, grad_norm=[0.0] * 20)
    assert (hidden.nan_from, hidden.nan_at_start, hidden.nan_hidden, hidden.masked_from) == (1, True, True, None)
    assert (masked.nan_from, masked.masked_from, masked.near_zero_from) == (None, 1, None)


def test_a_running_mean_that_hides_nan_is_seen_by_the_gradient_norm():
    found = shaped(loss=[2.75, 2.62, 2.67, 2.77, 2.51, 2.46], grad_norm=[3.1, 2.8, 2.8, 2.5, np.nan, np.nan])
    assert found.nan_from == 5
    assert found.last_finite_grad_norm == 2.5


def test_an_isolated_nan_is_named_as_isolated():
    losses = falling()
    losses[80] = np.nan
    found = shaped(loss=losses, grad_norm=noise(0.2))
    assert (found.nan_from, found.nan_isolated, found.nan_at_start) == (81, True, False)


def test_the_scale_search_of_fp16_is_no_nan():
    norms = noise(0.2)
    norms[:6] = np.inf
    norms[120] = np.inf
    assert shaped(loss=falling(), grad_norm=norms).nan_from is None


def test_gradient_norms_that_are_not_logged_are_no_masked_labels():
    losses = falling()
    losses[3] = 0.0
    found = shaped(loss=losses, grad_norm=np.zeros(200))
    assert found.masked_from is None


def test_policy_losses_of_zero_are_no_masked_labels():
    found = shaped(loss=np.zeros(40), grad_norm=np.zeros(40), reward=np.linspace(0, 1, 40))
    assert (found.kind, found.masked_from, found.zero_from, found.near_zero_from, found.repeats_exactly) == (
        "grpo",
        None,
        None,
        None,
        None,
    )


def test_a_rate_that_was_always_zero_is_told_from_one_that_decayed():
    bad = np.where(ROWS < 150, falling(), np.nan)
    assert shaped(loss=bad, learning_rate=np.full(200, 1e-8)).learning_rate_always_zero
    assert not shaped(loss=bad, learning_rate=np.maximum(0, np.linspace(1e-4, -3e-5, 200))).learning_rate_always_zero


def test_ln_v_is_only_of_the_runs_own_vocabulary():
    stuck = 10.825 + 0.03 * np.random.default_rng(1).standard_normal(200)
    assert shaped(50_304, loss=stuck).at_uniform
    assert not shaped(None, loss=stuck).at_uniform
    other = shaped(151_936, loss=stuck)
    assert other.no_learning
    assert not other.at_uniform


def test_the_marginal_is_told_from_ln_v():
    stalled = 7.4 + 4.5 * np.exp(-ROWS / 8) + 0.05 * np.random.default_rng(2).standard_normal(200)
    found = shaped(151_936, loss=stalled)
    assert found.at_marginal
    assert not found.at_uniform
    assert found.stalled_from is not None
    assert 10 <= found.stalled_from <= 40


def test_flat_is_told_from_a_slow_sure_fall():
    assert shaped(loss=7.4 * noise(0.01, 28)).no_learning
    assert not shaped(loss=np.linspace(1.42, 1.36, 137) * noise(0.006, 137)).no_learning


def test_noise_too_large_to_tell_is_not_called_flat():
    assert not shaped(loss=1.2 * noise(0.25, 40)).no_learning
    assert not shaped(loss=np.random.default_rng(3).gamma(1.2, 0.28, 3000)).no_learning


def test_a_rise_that_stays_is_divergence_and_flat_noise_or_a_hump_is_not():
    up = falling()
    up[100:] += 2.0
    assert 95 <= shaped(loss=up).diverged_from <= 105
    assert shaped(loss=1.2 * noise(0.25)).diverged_from is None
    hump = [12.4, 10.2, 11.7, 14.6, 11.2, 9.9, 8.1, 7.0, 6.1, 5.0]
    assert shaped(loss=hump).diverged_from is None
    assert shaped(loss=[12.4, 12.6, 13.9, 15.7]).diverged_from is None


def test_a_short_rise_into_nan_is_divergence():
    losses = [5.47, 6.9, 7.4, 8.04, 8.47, 8.18, 9.55, 9.52, *[np.nan] * 100]
    found = shaped(loss=losses)
    assert found.diverged_from is not None
    assert (found.nan_from, found.nan_at_start) == (9, False)


def test_swings_are_told_from_the_noise_of_small_batches():
    swing = np.exp(0.5 * np.sin(ROWS / 4))
    assert shaped(loss=falling() * swing).oscillates
    assert shaped(loss=falling(size=0.05) * np.exp(0.3 * (-1.0) ** ROWS)).oscillates
    assert not shaped(loss=falling(size=0.25)).oscillates


def test_spikes_have_places_and_a_period_where_they_return():
    losses = falling(size=0.04)
    losses[[60, 100, 150]] *= 5
    assert shaped(loss=losses).spikes == (61, 101, 151)
    assert shaped(loss=losses).oscillates
    blocks = np.tile(np.repeat([1.0, 1.6, 0.8, 1.3], 10), 5) * noise(0.05)
    assert shaped(loss=blocks).period == pytest.approx(40, abs=2)


def test_stairs_at_epoch_borders_are_memorisation_and_lead_to_near_zero():
    stairs = np.maximum(1.6 * np.exp(-0.8 * np.floor(ROWS / 20)), 0.01) * noise(0.1)
    found = shaped(loss=stairs, epoch=(ROWS + 1) / 20)
    assert found.epoch_steps
    assert 100 <= found.near_zero_from <= 130
    assert not found.oscillates


def test_a_small_loss_of_a_classifier_or_above_the_limit_is_not_near_zero():
    small = falling(0.7, 0.005)
    assert shaped(loss=small).near_zero_from is not None
    assert shaped(loss=small, kind="classification").near_zero_from is None
    assert shaped(loss=falling(2.3, 0.06)).near_zero_from is None


def test_the_same_losses_in_every_epoch_are_exact_repetition():
    once = (2 * noise(0.1, 25)).round(4)
    assert shaped(loss=np.tile(once, 8)).repeats_exactly == 25
    almost = np.tile(once, 8)
    almost[-1] += 1e-4
    assert shaped(loss=almost).repeats_exactly is None


def test_one_gradient_norm_for_ever_is_named_and_zero_is_not():
    assert shaped(loss=falling(), grad_norm=np.full(200, 1.4142)).constant_grad_norm == 1.4142
    assert shaped(loss=falling(), grad_norm=np.zeros(200)).constant_grad_norm is None


def test_overfitting_needs_a_rise_out_of_the_evaluations_own_noise():
    train = falling(2.2, 0.4, size=0.1)

    def turned(values):
        series = {"loss": Series.of(train), "eval_loss": Series.of(values, np.linspace(200 / len(values), 200, len(values)))}
        return shape(Metrics(series))

    rising = turned([1.4, 1.2, 1.15, 1.2, 1.3, 1.45, 1.6])
    assert rising.overfits_from == pytest.approx(3 * 200 / 7)
    assert rising.eval_rise == pytest.approx(0.3, abs=0.15)
    assert turned([1.372, 1.361, 1.363]).overfits_from is None
    assert turned([1.009, 0.98, 0.943, 0.905, 0.887, 0.883]).overfits_from is None
    assert turned([1.40, 1.20, 1.15, 1.152, 1.149, 1.151, 1.153]).overfits_from is None


def test_evaluations_that_jump_are_erratic_and_not_overfitting():
    found = shaped(loss=falling(), eval_loss=[1.3, 2.1, 1.2, 1.9, 1.25, 2.2, 1.3, 1.8])
    assert found.eval_erratic
    assert found.overfits_from is None


def test_a_schedule_that_ran_dry_is_told_from_one_that_ends_with_the_run():
    dry = np.concatenate((np.linspace(2e-5, 0, 40), np.zeros(160)))
    assert 38 <= shaped(loss=falling(), learning_rate=dry).dead_learning_rate_from <= 41
    assert shaped(loss=falling(), learning_rate=np.linspace(2e-5, 0, 200)).dead_learning_rate_from is None


def test_a_loss_scale_at_its_floor_is_exhausted_and_a_constant_one_is_not():
    fallen = np.maximum(1.0, 65536.0 / 2.0 ** np.maximum(0, ROWS - 100))
    assert shaped(loss=falling(), loss_scale=fallen).loss_scale_exhausted_from == 117
    assert shaped(loss=falling(), loss_scale=np.ones(200)).loss_scale_exhausted_from is None


def test_steps_that_slow_down_suddenly_or_steadily():
    pace = noise(0.1)
    sudden = np.where(ROWS < 120, pace, 3 * pace)
    assert 116 <= shaped(loss=falling(), step_seconds=sudden).throughput_dropped_from <= 124
    assert shaped(loss=falling(), step_seconds=pace * np.linspace(1, 4, 200)).throughput_decays > 2
    save = pace.copy()
    save[::50] *= 8
    assert shaped(loss=falling(), step_seconds=save).throughput_decays is None


def test_a_gradient_norm_that_creeps():
    assert shaped(loss=falling(), grad_norm=noise(0.3) * np.exp(ROWS / 60)).grad_norm_creeps > 4
    assert shaped(loss=falling(), grad_norm=noise(0.3) * np.linspace(1, 2, 200)).grad_norm_creeps is None


def test_the_change_at_a_resume_is_measured_where_the_step_goes_back():
    steps = np.concatenate((np.arange(1, 121), np.arange(101, 181))).astype(float)

    def resumed(factor):
        values = 1.2 * noise(0.03)
        values[120:] *= factor
        return shape(Metrics({"loss": Series.of(values, steps)}))

    assert resumed(1.5).resume_jump == pytest.approx(0.5, abs=0.05)
    assert resumed(0.7).resume_jump == pytest.approx(-0.3, abs=0.05)
    assert (resumed(1.0).resumed_at, resumed(1.0).resume_jump) == (101, None)


def test_a_resume_that_only_the_reader_saw():
    values = 1.2 * noise(0.03)
    values[150:] *= 1.4
    found = shape(Metrics({"loss": Series.of(values)}, resumed_at=(151.0,)))
    assert (found.resumed_at, found.resume_jump) == (151, pytest.approx(0.4, abs=0.05))


def test_a_first_loss_far_above_ln_v_is_not_optimisation():
    assert shaped(32_000, loss=falling(36.4, 26.3)).starts_too_high
    assert not shaped(50_304, loss=falling(11.07, 9.0)).starts_too_high


def test_preference_margins_and_rewards():
    chosen, rejected = np.linspace(0, -4, 60), np.linspace(0, -5, 60)
    both = shaped(loss=np.linspace(0.69, 0.4, 60), rewards__chosen=chosen, rewards__rejected=rejected)
    assert (both.kind, both.chosen_falls, both.margin_flat) == ("dpo", True, False)
    flat = shaped(loss=np.full(60, 0.6931), rewards__chosen=chosen, rewards__rejected=chosen, rewards__margins=np.zeros(60))
    assert flat.margin_flat
    mild = shaped(loss=np.linspace(0.69, 0.4, 60), rewards__chosen=chosen / 6, rewards__rejected=rejected / 3)
    assert not mild.chosen_falls


def test_a_kl_that_explodes_and_one_that_grows_a_little():
    rewards = np.linspace(0, 1, 80)
    assert shaped(loss=np.zeros(80), reward=rewards, kl=0.01 * np.exp(np.arange(80) / 10)).kl_blows_up_from is not None
    assert shaped(loss=np.zeros(80), reward=rewards, kl=np.linspace(0, 0.4, 80)).kl_blows_up_from is None


def test_rows_printed_twice_count_once():
    once = falling()
    twice = Series.of(np.repeat(once, 2), np.repeat(ROWS + 1.0, 2))
    assert shape(Metrics({"loss": twice})).points == 200
    assert shape(Metrics({"loss": twice})).noise == pytest.approx(shaped(loss=once).noise)


def test_of_several_runs_in_one_series_the_longest_is_judged():
    steps = np.concatenate((np.arange(1, 30), np.arange(1, 201))).astype(float)
    values = np.concatenate((np.full(29, 9.0), falling()))
    assert shape(Metrics({"loss": Series.of(values, steps)})).points == 200


def test_a_log_that_ends_before_its_plan_is_unfinished():
    series = {"loss": Series.of(falling())}
    assert shape(Metrics(series, total_steps=400)).unfinished
    assert not shape(Metrics(series, total_steps=200)).unfinished
    assert not shape(Metrics(series, total_steps=400, finished=True)).unfinished
