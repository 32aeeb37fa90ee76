"""The model sees the tokens that it should predict."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, conclude, facts, finite, say, shape_of
from tuneclinic.casebook.learning._training import epoch_at, rows
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Environment

FIRST_PASS = 0.9
"""Epochs before which no row was seen twice: a loss of about 0 cannot be memory there."""
MANY_ROWS = 1000.0
"""Rows beyond which the first pass cannot be memorised from duplicates alone in the usual set."""
SLIDING_FAULT = pattern(r"4\.42\.[01]$")
"""transformers 4.42.0 and 4.42.1: the sliding-window mask multiplied the causal mask away in eager and SDPA attention."""
SLIDING = {"gemma2", "mistral", "phi3", "starcoder2", "qwen2"}


class FutureTokensVisible(Case):
    id = "future-tokens-visible"
    symptoms = {"loss-near-zero": 0.05}
    stage = "overfit"
    needs = ("script", "metrics", "environment")
    probe = "invariance"
    search = (
        "loss drops to zero in a few steps causal mask",
        "missing causal mask",
        "model sees future tokens",
        "因果掩码缺失 loss 降到 0",
        "模型看到未来 token",
    )

    en = Card(
        title="Future tokens are visible",
        sign="The loss drops to about 0 within the first epoch, on held-out data too, and the model generates nonsense.",
        cause="The causal mask is missing, transposed, or replaced by another mask (sliding window, 4D packing mask), so each position can read the token it should predict. In generation that token does not exist yet.",
        remedy="Restore the causal mask: is_causal=True, or pass only a plain 2D attention mask and let the model build its own. If the library is at fault, upgrade it, or use another attn_implementation until then.",
        verify="Change the last token of an input: the logits of all earlier positions stay the same.",
        prevention="Keep that check as a test and run it after every change of model or attention. It needs two forward passes.",
        question="If you change the last token of a row, do the logits of earlier positions change?",
        quiz="Training and evaluation loss both reach 0.01 in 200 steps. Overfitting? No: held-out rows cannot be memorised. The answer leaks, through the mask or through the data.",
    )
    zh = Card(
        title="看到了未来的 token",
        sign="第一个 epoch 还没跑完 loss 就掉到接近 0，验证集上也一样，但生成出来全是胡话。",
        cause="因果掩码缺失、转置了，或被别的掩码（滑窗、4D packing 掩码）替换，每个位置都能看到自己要预测的那个 token；生成时那个 token 还不存在。",
        remedy="恢复因果掩码：is_causal=True，或只传普通的 2D attention mask 让模型自己构造。如果是库的 bug 就升级，升级前先换一种 attn_implementation。",
        verify="改动输入的最后一个 token，前面所有位置的 logits 都不变。",
        prevention="把这个检查做成测试，改模型或 attention 就跑，只要两次前向。",
        question="改掉一条样本的最后一个 token，前面位置的 logits 会变吗？",
        quiz="训练和验证 loss 200 步都降到 0.01，是过拟合吗？不是，验证集没法背：答案从掩码或数据里漏出来了。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("causal-mask-missing", quote="attn = F.scaled_dot_product_attention(q, k, v)"),
                metrics=make.ran(
                    loss=make.falling(200, 3.0, 0.005, noise=0.001, speed=25),
                    eval_loss=(range(40, 201, 40), [0.4, 0.05, 0.01, 0.006, 0.005]),
                ),
            ),
            Evidence(
                environment=Environment(packages={"transformers": "4.42.1"}),
                model=make.modelled(family="gemma2"),
                data=make.counted(20_000),
                settings=make.configured(epochs=1),
                metrics=make.ran(
                    loss=make.falling(300, 2.4, 0.003, noise=0.0005, speed=30),
                    eval_loss=(range(60, 301, 60), [0.2, 0.03, 0.01, 0.004, 0.003]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # near zero too, while the evaluation loss rises: memory
                script=make.scripted(checked=("causal-mask-missing",)),
                settings=make.configured(epochs=10),
                data=make.counted(50),
                metrics=make.ran(
                    loss=make.falling(200, 3.0, 0.005, noise=0.001, speed=25),
                    eval_loss=(range(20, 201, 20), [2.0, 1.8, 1.9, 2.1, 2.3, 2.5, 2.6, 2.7, 2.8, 2.9]),
                ),
            ),
            Evidence(metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, shown = shape_of(seen), facts(seen, "causal-mask-missing", weight=6.0)
        if not form.points:
            return self.confirmed(*shown) if shown else self.not_checked("metrics", "script")
        if form.near_zero_from is None:
            return self.ruled_out(say("the loss does not come near 0", "loss 没有降到接近 0", -6.0))
        known = _known_fault(seen)
        evals = finite(seen, "eval_loss")
        exhibits = [*shown, *known, *clean(seen, "causal-mask-missing", weight=-3.0)]
        low_too = bool(evals.size) and float(evals[-1]) < 0.1
        if evals.size:
            exhibits.append(
                say(
                    f"the evaluation loss ends at {evals[-1]:.3g}",
                    f"验证 loss 终值 {evals[-1]:.3g}",
                    3.0 if low_too else -6.0,
                )
            )
        at, count = epoch_at(seen, form.near_zero_from), rows(seen)
        if at is not None and at < FIRST_PASS and (count or 0) > MANY_ROWS:
            exhibits.append(
                say(
                    f"about 0 from epoch {at:.2g} on, within the first epoch of {count:,.0f} rows",
                    f"第 {at:.2g} 个 epoch 就接近 0，{count:,.0f} 条数据还没过完一遍",
                    3.0,
                )
            )
        if not exhibits:
            return self.not_checked("script")
        return conclude(self, exhibits, proof=bool((shown or known) and (low_too or not evals.size)), missing=("script", "data"))


def _known_fault(seen: Evidence) -> tuple[Exhibit, ...]:
    version = seen.environment.packages.get("transformers", "") if seen.environment is not None else ""
    family = (seen.model.family or "").lower() if seen.model is not None else ""
    if not SLIDING_FAULT.match(version) or family not in SLIDING:
        return ()
    return (
        say(
            f"transformers {version} loses the causal mask in sliding-window layers ({family})",
            f"transformers {version} 在滑窗层（{family}）会丢掉因果掩码",
            5.0,
            section="environment",
        ),
    )
