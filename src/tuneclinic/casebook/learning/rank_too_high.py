"""The adapter's rank is too high for the data."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, number, say, setting, shape_of
from tuneclinic.casebook.learning._training import USUAL_EPOCHS, USUAL_RANK_HIGH, change_size, epochs, learning_rate, usual_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

PARAMETERS_PER_TOKEN = 10.0
"""Trainable parameters a training token from which the adapter can hold the set many times over: at 2 bits a parameter
(Allen-Zhu and Li 2024) ten parameters hold 20 bits, and a token carries 2 to 4."""


class RankTooHigh(Case):
    id = "rank-too-high"
    symptoms = {"overfits": 0.08, "forgets": 0.1}
    stage = "hyperparameters"
    needs = ("settings", "model")
    probe = "evaluation"
    change = {"lora_rank": 16}
    search = ("lora r 256 overfits", "lora rank too high", "LoRA rank 太大 过拟合", "秩设多大")

    en = Card(
        title="The LoRA rank is too high",
        sign="The training loss falls fast and the evaluation loss turns up within a few epochs, at a usual learning rate. For a small data set the adapter file has hundreds of megabytes.",
        cause="Rank 128 or 256 on all linear layers means hundreds of millions of parameters. For a few million training tokens that is enough to store every row, so the model memorises. A larger change also costs more of the old abilities.",
        remedy="Set rank 8 to 16 with alpha at twice the rank, and keep the learning rate: r=16, lora_alpha=32 in LoraConfig (LLaMA-Factory: lora_rank: 16, lora_alpha: 32; axolotl: lora_r: 16, lora_alpha: 32). If quality on held-out data falls, double the rank again.",
        verify="The evaluation loss of the new run turns later or not at all and ends lower. The training loss ends higher, as expected.",
        prevention="Start at rank 16 and raise it only when held-out quality improves. Note trainable parameters next to training tokens.",
        question="Which rank, on which modules, and how many rows does the data set have?",
        quiz="Rank 256 gives a lower training loss than rank 16. Is it better? Only if the evaluation loss says so: a lower training loss can just mean more memorising.",
    )
    zh = Card(
        title="LoRA 的 rank 太大",
        sign="学习率正常，训练 loss 降得很快，验证 loss 几个 epoch 之内就回升；数据不大，adapter 文件却有几百 MB。",
        cause="所有线性层都上 128、256 的 rank，就是上亿个参数。对几百万 token 的数据来说，足够把每条都存下来，模型就去死记；改动越大，原有能力也丢得越多。",
        remedy="rank 降到 8～16，alpha 取 rank 的两倍，学习率不变：LoraConfig 里 r=16、lora_alpha=32（LLaMA-Factory 是 lora_rank: 16、lora_alpha: 32，axolotl 是 lora_r: 16、lora_alpha: 32）。验证集质量不够再按 2 倍往上加。",
        verify="新训练的验证 loss 更晚回升或不回升，终值更低；训练 loss 终值会更高，这是正常的。",
        prevention="从 16 起步，验证集变好才加；记录可训练参数量和训练 token 数的比例。",
        question="rank 是多少、加在哪些模块上、数据有多少条？",
        quiz="rank 256 的训练 loss 比 16 低，是不是更好？看验证 loss：训练 loss 更低可能只是记得更多。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=2, lora_rank=256),
                model=make.modelled(trainable=3.2e8),
                data=make.counted(5000, tokens_estimated=900_000.0),
                metrics=make.ran(
                    loss=make.falling(300, 2.0, 0.3, noise=0.03),
                    eval_loss=(range(30, 301, 30), [1.6, 1.4, 1.35, 1.45, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1]),
                ),
            ),
            Evidence(
                settings=make.configured("llama-factory", method="lora", learning_rate=1e-4, epochs=3, lora_rank=128),
                model=make.modelled(trainable=1.6e8),
                data=make.counted(2000, tokens_estimated=400_000.0),
                metrics=make.ran(
                    loss=make.falling(240, 1.9, 0.25, noise=0.03),
                    eval_loss=(range(24, 241, 24), [1.5, 1.36, 1.3, 1.41, 1.5, 1.62, 1.7, 1.8, 1.9, 2.0]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same turn at rank 8
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=2, lora_rank=8),
                model=make.modelled(trainable=1e7),
                data=make.counted(5000, tokens_estimated=900_000.0),
                metrics=make.ran(
                    loss=make.falling(300, 2.0, 0.3, noise=0.03),
                    eval_loss=(range(30, 301, 30), [1.6, 1.4, 1.35, 1.45, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1]),
                ),
            ),
            Evidence(  # the same rank, and the evaluation falls
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=2, lora_rank=256),
                metrics=make.ran(loss=make.falling(300), eval_loss=(range(30, 301, 30), make.falling(10, 1.8, 1.1, noise=0.005))),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        adapter = seen.model.adapter if seen.model is not None else None
        rank = number(seen, "lora_rank") or (adapter.rank if adapter is not None else None)
        form = shape_of(seen)
        if rank is None:
            return self.not_checked("settings")
        if rank <= USUAL_RANK_HIGH:
            return self.ruled_out(
                *setting(seen, "lora_rank"),
                say(f"rank {rank:g}; 8 to 64 are usual", f"rank {rank:g}；常用 8～64", -4.0, section="settings"),
            )
        if form.overfits_from is None:
            if seen.metrics is not None and seen.metrics.get("eval_loss") is not None:
                return self.ruled_out(say("the evaluation loss does not turn up", "验证 loss 没有回升", -5.0))
            return self.not_checked("metrics")
        shown = say(
            f"rank {rank:g}; 8 to 64 are usual",
            f"rank {rank:g}；常用 8～64",
            1.0 + math.log2(rank / USUAL_RANK_HIGH),
            section="settings",
        )
        turned = say(
            f"the evaluation loss turns up at step {form.overfits_from:g}",
            f"验证 loss 在第 {form.overfits_from:g} 步开始回升",
            1.0,
        )
        exhibits = [shown, *setting(seen, "lora_rank"), turned, *change_size(seen)]
        ratio = _parameters_per_token(seen)
        if ratio is not None:
            exhibits.append(
                say(
                    f"{ratio:,.0f} trainable parameters for each training token",
                    f"每个训练 token 对应 {ratio:,.0f} 个可训练参数",
                    2.0 if ratio >= PARAMETERS_PER_TOKEN else -2.0,
                    section="model",
                )
            )
        passes, rate = epochs(seen), learning_rate(seen)
        others_usual = passes is not None and passes <= USUAL_EPOCHS and rate is not None and rate <= usual_rate(seen)[2]
        return conclude(self, exhibits, proof=others_usual and ratio is not None and ratio >= PARAMETERS_PER_TOKEN)


def _parameters_per_token(seen: Evidence) -> float | None:
    trainable = seen.model.trainable if seen.model is not None else None
    tokens = seen.data.statistics.get("tokens_estimated") if seen.data is not None else None
    return trainable / tokens if trainable and tokens else None
