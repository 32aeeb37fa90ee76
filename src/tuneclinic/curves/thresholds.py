"""Thresholds of the curve statistics, each with the source it was taken from.

"Measured" names two sets: the public runs that a reader judged healthy or not (98 logs) and the generated runs of
`bench/curves.py`. Sizes are relative unless a unit stands beside them.
"""

from __future__ import annotations

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation of a normal distribution (Rousseeuw and Croux 1993)."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, normal noise: sqrt(pi / 2)."""

# how much of a series an end or a window is
TAIL_SHARE = 0.05
"""Share of points that "the last value" is the median of; the definition used by the table of usual curves."""
TAIL_POINTS = 3
"""The fewest points of an end: the smallest odd number of which a median ignores one stray value."""
EXACT_POINTS = 6_000
"""Series longer than this are smoothed by block medians, so that a million points stay under a second."""
SAMPLE = 65_536
"""Values that medians over long series are taken of."""
BLOCKS = 2_048
"""Blocks that a long series is cut into: more than any screen shows."""
BLOCK_SAMPLE = 16
"""Values of a block that its median is taken of."""
TREND_BLOCKS = 24
"""Blocks of a Theil-Sen line: 276 slopes, breakdown at 29 % (Sen 1968)."""

# NaN
START_ROWS = 3
"""NaN within this many logged rows is "at the start": public NaN runs that are labelled so begin at row 1 or 2, the earliest
one labelled "mid-run" at row 9."""
START_STEPS = 100
"""… unless rows are far apart: beyond this step only the very first row counts as the start. Usual warm-ups end here."""
STRETCH_ROWS = 3
"""Rows in a row before a value counts as a state and not as an accident."""
FAR_FROM_ZERO = 0.5
"""Loss before a drop to exactly 0.0 that no step of learning makes: fine-tuning runs end at 0.6 to 1.6, and a loss printed with
four digits reads 0.0 below 0.00005."""
DEAD_RATE = 1e-7
"""Learning rates at or below this count as 0: the smallest rate of 3,280 collected settings is 1e-7 (DPO, full, p10 2e-7)."""
DEAD_SHARE = 0.1
"""Share of rows (and at least 10) with a rate of 0 at the end before the schedule ran dry: a decay to 0 ends at the last row."""
DEAD_ROWS = 10
"""See `DEAD_SHARE`."""
SCALE_FLOOR = 1.0
"""Loss scale at which DeepSpeed gives up by default (min_loss_scale 1)."""

# flat
FLAT_POINTS = 20
"""The fewest points of a flatness claim: the shortest public run labelled as not falling has 22."""
FLAT_CHANGE = 0.035
"""Largest change over the whole run of a flat loss. Measured: flat public runs change by 0.6 to 2.1 %; the slowest healthy
ones by 3.0 and 7.2 %, the former told apart by `FLAT_SIGMAS`."""
FLAT_SURE = 0.015
"""A fall smaller than this is flat however surely it is measured; one between this and `FLAT_CHANGE` only where noise could …"""
FLAT_SIGMAS = 4.0
"""… feign it, in standard errors. Measured: public flat runs fall by 0.6 to 2.6 errors, a healthy run that falls by 3 % by 13."""
FLAT_ERROR = 0.03
"""Largest standard error of that change at which "flat" can still be told from "falls slowly"."""
FLAT_RATIO_NOISE = 0.35
"""Step noise over level above which no claim of flatness is made: diffusion losses measure 0.7, language models at most 0.25."""
HIGH_LEVEL = 3.0
"""Nats. A pretrained language model that is flat above this sits at no plausible level: the highest first loss of 80 usual
chat, base and vision runs is 3.66, and the 90th percentile is under 3."""
UNIFORM_BELOW = 0.12
"""Nats under ln(vocabulary) that still count as guessing evenly: 2 % of the smallest usual ln V, and the padding of embedding
rows beyond the tokenizer moves ln V by less than 0.05."""
UNIFORM_ABOVE = 0.5
"""Nats over ln(vocabulary) of an untrained head: observed starts lie 0.24 and 0.47 above it."""
MARGINAL_SHARE = 0.55
"""Lowest share of ln V that counts as the token marginal. Measured on a small model: labels of other rows 0.88, labels shifted
twice 0.66; unigram entropy of English text over 32k-150k tokens is 0.6 to 0.7 of ln V."""
STALL_SHARE = 0.5
"""Share of the run at its end that must be flat before a loss that fell is called stalled."""

# divergence
DIVERGE_POINTS = 8
"""The fewest finite rows of a divergence: the shortest public run labelled so diverges within 8; from-scratch runs show a hump
at step 2 to 4 of 10."""
DIVERGE_RISE = 0.25
"""Rise of the end over the lowest smoothed value. Healthy public language models end 0 to 13 % over their
lowest."""
DIVERGE_OF_RANGE = 0.25
"""… and this share of the whole fall undone, so that a wiggle near 0 is no divergence: two healthy classifiers end at twice their
lowest, with 1 and 4 % of the fall undone."""
DIVERGE_SIGMAS = 6.0
"""… and this many standard errors of the smoothed curve: 0 of 300 generated healthy runs at 0.25 log-normal noise."""

DIVERGE_RETURNS = 2
"""Falls back through half of the rise after the first tenth of the run: from two on it swings and does not diverge."""

# swings
SWING_POINTS = 60
"""The fewest points for slow swings: twelve blocks of five, of which a median deviation can be taken."""
SWING_RATIO = 6.0
"""Variance of five-row means over that of white noise (1 when rows are independent, 5 when they move together at most)."""
SWING_SIZE = 0.30
"""Peak to trough (5th to 95th percentile) of the swings, natural logarithm of the loss."""
ALTERNATE_POINTS = 16
"""The fewest points for swings from row to row."""
ALTERNATE_CORRELATION = -0.45
"""Lag-one correlation of detrended rows that jump up and down in turn (0 for independent rows)."""
ALTERNATE_SIZE = 0.12
"""Robust standard deviation of such swings, natural logarithm of the loss."""
ROUGH_SIZE = 0.65
"""Robust standard deviation of independent rows that is no small-batch noise any more, natural logarithm of the loss: usual step
noise at batch 8 logged every step is 0.08 to 0.23 for chat models and up to 0.58 for vision-language models."""
SPIKE_SIGMAS = 15.0
"""Size of a spike over the run's own jitter: at 15 a Student t noise with 4 degrees of freedom crosses twice in 100,000."""
SPIKE_RATIO = 1.8
"""… and over the level beside it. Rows up to 1.6 times the first occur in usual chat runs."""
SPIKE_COUNT = 3
"""Spikes before a run is called spiky: one or two odd batches are in most data sets."""
REINFORCE_PEAK = 0.5
"""Policy-gradient losses stay within about 0.1 of 0; labelled spikes reach 0.73 and 1.10."""
REINFORCE_RATIO = 10.0
"""… and this many times the median size."""
PERIOD_POINTS = 60
"""The fewest points for a period."""
PERIOD_CORRELATION = 0.3
"""Autocorrelation at the period and at twice the period."""
PERIOD_SIZE = 0.25
"""Swing of the folded profile, natural logarithm of the loss."""
STAIR_ROWS = 3
"""Rows on each side of an epoch border that are compared, at least."""
STAIR_FALL = 0.10
"""Median fall of the loss at epoch borders that reads as memorisation. Healthy mild stairs measure up to 6 %."""
NEAR_ZERO = 0.025
"""Nats a token at the end: public runs labelled near zero end at 0.0002 to 0.02, healthy ones at 0.032 (formula pictures, a short
demo) or above."""
NEAR_ZERO_EVAL = 0.005
"""Evaluation loss in an end-of-run summary that is near zero: the labelled run shows 0.0004."""
NEAR_ZERO_ROWS = 3
"""The fewest rows at that level."""

# evaluation
OVERFIT_RISE = 0.012
"""Rise of the evaluation loss over its minimum: the mildest labelled run shows 1.7 %, flat healthy ones wander by 0.2 to 0.4 %."""
OVERFIT_RISE_SHORT = 0.02
"""… with fewer than five evaluations: the labelled run with three shows 2.4 %."""
OVERFIT_SIGMAS = 4.0
"""… and over the evaluation's own jitter."""
OVERFIT_TRAIN_FALL = 0.02
"""Fall of the training loss from the turn to the end that makes it overfitting and not divergence."""
ERRATIC_POINTS = 5
"""The fewest evaluations of a claim that they jump."""
ERRATIC_SIZE = 0.08
"""Robust jitter of evaluations over their level; a fixed evaluation set measures 0.1 to 3 % in public runs."""
ERRATIC_TURNS = 0.33
"""Share of evaluations that turn direction; a smooth curve turns once, independent jitter in two of three, of eight values seldom fewer than in one of three."""

# preference and reinforcement learning
MARGIN_FLAT = 0.02
"""Margin (in units of beta times log-ratio) that is still no margin after a run: usual margins at 10 % of an epoch are 0.05 up."""
CHOSEN_FALL = 0.8
"""Fall of the chosen reward that a person notices. A slightly negative one is the rule: usual margins end at 0.5 to 1.6, and one of 300
generated healthy runs passed 0.5."""
KL_BLOW_UP = 10.0
"""Times the run's early KL, and …"""
KL_HIGH = 2.0
"""… nats: the KL of 19 usual GRPO runs ends at 0.0001 to 1.22, whatever peaks it had before."""
ACCURACY_SATURATED = 0.995
"""Training accuracy of preference pairs that is memorised; usual ends are 0.72 to 0.87."""
ACCURACY_HOLDS = 0.95
"""Accuracy on held-out pairs from which an equally high training accuracy is learnt and not memorised."""

# gradient norm, throughput
CREEP_RATIO = 4.0
"""Last over first fifth of a steadily rising gradient norm. Healthy public runs change by 0.9 to 3.0 times."""
CREEP_ORDER = 0.8
"""Rank correlation (Spearman) of block medians with time that counts as steady."""
CREEP_POINTS = 24
"""The fewest rows with a gradient norm: three to each of eight blocks."""
SLOW_POINTS = 24
"""The fewest rows with a speed: three to each of eight blocks, so that one slow step (a save) is no trend."""
SLOW_DECAY = 1.6
"""Factor by which steps slow down steadily over the run."""
SLOW_DROP = 1.8
"""Factor of a sudden slow-down that stays."""

# resume
RESUME_JUMP = 0.10
"""Change of the loss at a resume, over the level before; and …"""
RESUME_SIGMAS = 5.5
"""… over the standard error of the two medians compared."""
RESUME_DRIFTS = 2.0
"""… and over the change within the rows before, so that a loss that still falls fast is no jump."""
RESUME_ROWS = 10
"""Rows compared on each side of a resume."""
RATE_RESTART = 0.2
"""A learning rate that falls below this share of the row before, and then climbs again, was warmed up anew."""
FINISHED_SHARE = 0.97
"""Share of the planned steps that counts as finished: logging intervals leave the last rows out."""
START_EXCESS = 5.0
"""Nats over ln(vocabulary) at the first row that neither initialisation (observed: up to 0.47) nor the families that start high
(up to 4.6) explain."""
