"""A fused kernel computes something else than it should, without NaN."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts, fell
from tuneclinic.casebook.learning._facts import conclude, falls, say, setting, shape_of
from tuneclinic.casebook.learning._training import learning_rate, rate_exhibit, usual_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

SWITCHES = ("liger", "torch_compile", "attention")
"""Settings that exchange a kernel and must not change the result."""
PLAIN = ("eager", "disabled", "none", "false", "sdpa")


class BrokenKernel(Case):
    id = "broken-kernel"
    symptoms = {"loss-diverges": 0.05}
    stage = "environment"
    needs = ("metrics", "attempts")
    probe = "parity"
    change = {"liger": False, "torch_compile": False, "attention": "eager"}
    search = (
        "loss diverges only with liger kernel",
        "torch.compile loss different",
        "flash attention wrong loss",
        "liger kernel loss 不对",
        "torch.compile 之后 loss 不收敛",
        "换算子之后 loss 发散",
    )

    en = Card(
        title="A fused kernel gives wrong results",
        sign="The learning rate is usual and the data is sound, but the loss rises or stays flat. Turning one fused kernel off (Liger, torch.compile, flash attention, a custom op) fixes it. No error, no NaN.",
        cause="A kernel that does not fit this GPU, shape or version returns numbers that are wrong by far more than rounding: a race in the backward pass, a wrong stride, a patch written for another version of the model code.",
        remedy="Turn all fused kernels off: use_liger_kernel=False, torch_compile=False, attn_implementation='eager' (LLaMA-Factory: enable_liger_kernel: false, flash_attn: disabled; axolotl: remove the liger plugin, eager_attention: true). If the run recovers, turn them on one by one. Pin or upgrade the one at fault.",
        verify="Logits and gradients of one batch agree between plain and fused kernels: to about 1e-2 in bf16, 1e-5 in fp32.",
        prevention="After every upgrade of torch, flash-attn, Triton or Liger, compare plain and fused kernels on one batch.",
        question="Does the loss recover when Liger, torch.compile and flash attention are all off?",
        quiz="Same config, new image, the loss stays at 1.5 instead of falling, no error. What is the first experiment? Plain kernels on the same batch, and compare the gradients.",
    )
    zh = Card(
        title="某个融合算子算错了",
        sign="学习率正常、数据没问题，loss 却上升或不动；关掉某个融合算子（Liger、torch.compile、flash attention、自定义算子）就好。不报错，也没有 NaN。",
        cause="算子和这张卡、这个形状或版本不匹配，算出来的数偏差远超舍入误差：反向里有竞争（race）、stride 错了，或者补丁是给另一版模型代码写的。",
        remedy="先把融合算子全关：use_liger_kernel=False、torch_compile=False、attn_implementation='eager'（LLaMA-Factory 是 enable_liger_kernel: false、flash_attn: disabled；axolotl 去掉 liger 插件、设 eager_attention: true）。确认恢复后再一个个打开，找到的那个锁版本或升级。",
        verify="同一个 batch，普通算子和融合算子的 logits、梯度一致：bf16 误差约在 1e-2 内，fp32 在 1e-5 内。",
        prevention="升级 torch、flash-attn、Triton、Liger 之后，拿一个 batch 做一次一致性检查。",
        question="把 Liger、torch.compile、flash attention 全关掉，loss 恢复了吗？",
        quiz="配置没变，换了镜像后 loss 停在 1.5 不降、也不报错，先做什么？用普通算子跑同一个 batch，对比梯度。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=1e-4, liger=True),
                metrics=make.ran(loss=make.blows_up(at=80, end=6.0), learning_rate=make.peaked(peak=1e-4)),
                attempts=make.tried(("no-liger", {"method": "lora", "learning_rate": 1e-4, "liger": False}, 1.6, 0.9)),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=1e-5, torch_compile=True),
                metrics=make.ran(
                    loss=make.level(200, 1.55), grad_norm=make.level(200, 0.8, 0.2), learning_rate=make.peaked(peak=1e-5)
                ),
                attempts=make.tried(("plain", {"method": "full", "learning_rate": 1e-5, "torch_compile": False}, 1.55, 1.0)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the plain kernel fails alike
                settings=make.configured(method="lora", learning_rate=1e-4, liger=True),
                metrics=make.ran(loss=make.blows_up(at=80, end=6.0), learning_rate=make.peaked(peak=1e-4)),
                attempts=make.tried(("no-liger", {"method": "lora", "learning_rate": 1e-4, "liger": False}, 1.6, 6.1)),
            ),
            Evidence(settings=make.configured(liger=True), metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        moving = falls(seen)
        if moving is not None:
            return self.ruled_out(moving)
        if form.diverged_from is None and not form.no_learning:
            return self.not_checked("metrics")
        found = [
            (name, contrast)
            for name in SWITCHES
            for contrast in contrasts(seen, name)
            if _on(contrast.mine) and not _on(contrast.other)
        ]
        cured = [contrast_exhibit(contrast, name) for name, contrast in found if fell(contrast.attempt)]
        if found and not cured:
            return self.ruled_out(*(contrast_exhibit(contrast, name, -6.0) for name, contrast in found))
        used = [exhibit for name in ("liger", "torch_compile") if _flag(seen, name) for exhibit in setting(seen, name, 0.5)]
        if cured:
            return self.confirmed(*cured, *used)
        if form.diverged_from is None or not used:
            return self.not_checked("attempts", exhibits=tuple(used))
        rate = learning_rate(seen)
        usual = rate is not None and rate <= usual_rate(seen)[2]
        if not usual:
            return self.not_checked("attempts", exhibits=tuple(used))
        risen = say(f"the loss rises from step {form.diverged_from:g} on", f"loss 从第 {form.diverged_from:g} 步开始上升", 0.5)
        return conclude(self, (risen, *used, *rate_exhibit(seen, 0.5)), missing=("environment", "attempts"))


def _on(value: object) -> bool:
    return str(value).lower() not in {*PLAIN, "0", "no", "off"}


def _flag(seen: Evidence, name: str) -> bool:
    return seen.settings is not None and bool(seen.settings.flag(name))
