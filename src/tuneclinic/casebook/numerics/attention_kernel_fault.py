"""The attention kernel computes a wrong gradient."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts
from tuneclinic.casebook.learning._facts import conclude, lines, say, setting, shape_of, text_of
from tuneclinic.casebook.numerics._nan import all_finite, broken, finite_loss_with_broken_gradient, never_stepped, precision
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

WARNINGS = (
    r"cudnn sdpa? .{0,40}backward got .{0,60}strides",
    r"cudnn sdp\(?a?\)? backward",
    r"scaleddotproduct\w*backward0' returned nan values",
    r"flash_?attn\w* .{0,80}returned nan",
)
EAGER = ("eager", "disabled", "none", "false")
NAN = float("nan")


class AttentionKernelFault(Case):
    id = "attention-kernel-fault"
    symptoms = {"nan-at-start": 0.06}
    stage = "environment"
    explains = ("nan-hidden-by-logging",)
    needs = ("metrics", "log", "crash")
    probe = "bisect-nan"
    change = {"attention": "eager"}
    signatures = WARNINGS
    search = (
        "loss 0.0 grad_norm nan from first step sdpa",
        "cuDNN SDPA backward got grad_output.strides() != output.strides()",
        "flash_attn disabled fixes nan",
        "sdpa 反向 nan",
        "换 eager attention 就不 NaN 了",
        "flash_attn 导致 grad nan",
    )

    en = Card(
        title="The attention backward returns NaN",
        sign="grad_norm is NaN from the very first step, with learning rate 0 and in any precision, while the loss of that step is a normal number. With eager attention it is gone; on another machine with other versions it does not happen.",
        cause="In this combination of torch, cuDNN, driver and GPU, the backward pass of the fused attention kernel returns NaN, often for padded rows, unusual head sizes or strides. Data and settings are not the cause.",
        remedy="Prove it with eager attention: attn_implementation='eager' in from_pretrained, flash_attn: disabled in LLaMA-Factory, eager_attention: true in axolotl. Then get the speed back with flash_attention_2 or another torch build. torch.backends.cuda.enable_cudnn_sdp(False) turns off only the cuDNN kernel.",
        verify="Run one batch forward and backward with eager and with the fused kernel: eager is finite. After the change, the first ten steps show normal gradient norms.",
        prevention="Pin torch, CUDA and flash-attn together for each GPU type. After each image change, check the gradients of one batch.",
        question="Does the NaN vanish with attn_implementation='eager'?",
        quiz="Step 1: loss 0.87, grad_norm nan, lr 0. fp16 or bf16, DeepSpeed on or off, nothing changes. What is the suspect? The attention backward: change the kernel.",
    )
    zh = Card(
        title="attention 反向返回 NaN",
        sign="第一步梯度范数就是 NaN，学习率还是 0，换什么精度都一样；那一步的 loss 是正常数字。换 eager attention 就好，换台机器也没事。",
        cause="这套 torch、cuDNN、驱动、显卡组合下，融合 attention 的反向会返回 NaN，常见于有 padding 的行、特殊的 head 维度或 stride。和数据、配置无关。",
        remedy="先换 eager 验证：from_pretrained 里 attn_implementation='eager'，LLaMA-Factory 设 flash_attn: disabled，axolotl 设 eager_attention: true。确认后再换 flash_attention_2 或别的 torch 版本找回速度。只关 cuDNN 的算子用 torch.backends.cuda.enable_cudnn_sdp(False)。",
        verify="同一个 batch 用 eager 和融合算子各做一次前向和反向：eager 的结果是有限值。改完之后前十步梯度范数正常。",
        prevention="按卡型把 torch、CUDA、flash-attn 版本一起锁定；换镜像后先跑一个 batch 的梯度检查。",
        question="设 attn_implementation='eager' 之后 NaN 还在吗？",
        quiz="第 1 步 loss 0.87、grad_norm nan、学习率 0，fp16、bf16、开关 DeepSpeed 都一样，怀疑谁？attention 的反向，换算子。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "UserWarning: cuDNN SDPA backward got grad_output.strides() != output.strides(), attempting to materialize a grad_output with matching strides..."
                ),
                settings=make.configured("llama-factory", bf16=True, method="lora", learning_rate=1e-4),
                metrics=make.ran(
                    loss=make.then(make.level(30, 60.57), 0.0, 1), grad_norm=[NAN] * 30, learning_rate=make.level(30, 0.0, 0.0)
                ),
            ),
            Evidence(
                settings=make.configured("llama-factory", bf16=True, method="lora", learning_rate=1e-4, attention="sdpa"),
                metrics=make.ran(loss=make.then(make.level(30, 0.87), 0.0, 1), grad_norm=[NAN] * 30),
                attempts=make.tried(
                    ("eager", {"bf16": True, "method": "lora", "learning_rate": 1e-4, "attention": "eager"}, 0.87, 0.6)
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same NaN with eager attention
                settings=make.configured("llama-factory", bf16=True, attention="eager"),
                metrics=make.ran(loss=make.then(make.level(30, 0.87), 0.0, 1), grad_norm=[NAN] * 30),
            ),
            Evidence(  # the same warning in a healthy run
                log=make.logged(
                    "UserWarning: cuDNN SDPA backward got grad_output.strides() != output.strides(), attempting to materialize"
                ),
                metrics=make.ran(loss=make.falling(), grad_norm=make.level(200, 1.0, 0.2)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        fine = all_finite(seen)
        if fine is not None:
            return self.ruled_out(fine)
        if text_of(seen, "attention") in EAGER:
            return self.ruled_out(*setting(seen, "attention", -8.0))
        bad, warned = broken(seen), lines(seen, *WARNINGS, weight=4.0)
        if not bad:
            return (
                conclude(self, warned, missing=("metrics",)) if seen.crash is not None and warned else self.not_checked("metrics")
            )
        form = shape_of(seen)
        if not form.nan_at_start:
            return self.ruled_out(*bad, say("the first steps were finite", "开头几步是正常的", -5.0))
        cured = [
            contrast_exhibit(contrast, "attention")
            for contrast in contrasts(seen, "attention")
            if str(contrast.other).lower() in EAGER and contrast.attempt.last_loss
        ]
        exhibits = [*bad, *warned, *cured]
        if never_stepped(seen):
            exhibits.append(say("the learning rate was 0 all along: no weight has changed", "学习率一直是 0：权重没动过", 1.5))
        forward = finite_loss_with_broken_gradient(seen)
        if forward is not None:
            exhibits += [forward, say("the forward pass is finite, the backward pass is not", "前向有限，反向不是", 1.0)]
        if precision(seen) in {"bf16", "fp32"}:
            exhibits.append(say("the run does not train in fp16", "训练精度不是 fp16", 1.0, section="settings"))
        return conclude(self, exhibits, proof=bool(cured or warned), missing=("log", "environment"))
