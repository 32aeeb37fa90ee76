"""The projector's own training stage learned nothing."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, falls, flat, say, setting, shape_of
from tuneclinic.casebook.learning._sight import blind
from tuneclinic.casebook.learning._training import learning_rate, rate_exhibit
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

STAGE_ONE = ("tune_mm_mlp_adapter", "tune_projector_only", "freeze_backbone")
"""Keys with which LLaVA and its kin train the projector alone."""


class ProjectorNeverAligned(Case):
    id = "projector-never-aligned"
    symptoms = {"blind-to-image": 0.06}
    stage = "overfit"
    needs = ("metrics", "settings")
    probe = "image"
    change = {"learning_rate": 1e-3}
    search = (
        "stage 1 projector loss does not decrease",
        "llava pretrain loss stays high",
        "投影层没对齐",
        "VLM 第一阶段 loss 不降",
        "mm_projector 预训练 loss 不降",
    )

    en = Card(
        title="The projector was never aligned",
        sign="Stage one, in which only the projector is trained, ends at the loss it began with. After stage two the model writes well and describes things that are not in the image.",
        cause="If stage one learned nothing, image features reach the language model as noise, and stage two only teaches it to ignore them. Usual reasons: a learning rate meant for the language model (the projector needs 1e-3, not 2e-5), captions cut off or masked, image tokens that are never replaced by features.",
        remedy="Repeat stage one on caption pairs with learning_rate: 1e-3, training the projector alone (LLaMA-Factory: finetuning_type: full, freeze_vision_tower: true, freeze_language_model: true, freeze_multi_modal_projector: false). Continue only when its loss has fallen by a third or more. Then train stage two from that projector.",
        verify="The loss of stage one falls within the first 200 steps. Before stage two starts, a real image gives another caption than a blank one.",
        prevention="Test each stage by itself: before training, after the projector, at the end; each time with a real, a blank and a wrong image.",
        question="At which loss did the first stage (projector only) start, and at which did it end?",
        quiz="The loss of stage two looks perfect and the model does not see the image. Where do you look? At the curve of stage one: text alone can bring the loss of stage two down.",
    )
    zh = Card(
        title="projector 没有对齐",
        sign="只训 projector 的第一阶段，loss 从头到尾没变；第二阶段训完文笔很好，描述的却是图里没有的东西。",
        cause="第一阶段没学到，图像特征进语言模型就是噪声，第二阶段只是教它忽略图像。常见原因：用了语言模型的学习率（projector 要 1e-3，不是 2e-5）、caption 被截断或掩掉、图像 token 根本没被替换成特征。",
        remedy="用 caption 数据重做第一阶段，只训 projector，learning_rate: 1e-3（LLaMA-Factory 设 finetuning_type: full、freeze_vision_tower: true、freeze_language_model: true、freeze_multi_modal_projector: false）。loss 降掉三分之一以上再往下走，然后用这个 projector 做第二阶段。",
        verify="第一阶段 200 步内 loss 明显下降；进入第二阶段之前，真图和空白图的描述已经不同。",
        prevention="每个阶段单独验收：训练前、projector 训完后、全部训完后，各用真图、空白图、错图看一遍。",
        question="第一阶段（只训 projector）的 loss 起点和终点各是多少？",
        quiz="第二阶段 loss 很漂亮，模型却看不见图，先看哪里？看第一阶段的曲线：光靠文本也能把第二阶段的 loss 拉下来。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(
                    "llama-factory", freeze_vision=True, freeze_language=True, freeze_projector=False, learning_rate=2e-5
                ),
                metrics=make.ran(loss=make.level(300, 3.4, 0.08), learning_rate=make.peaked(300, 2e-5)),
            ),
            Evidence(
                settings=make.configured(
                    "ms-swift", freeze_vision=True, freeze_language=True, freeze_projector=False, learning_rate=1e-3
                ),
                metrics=make.ran(loss=make.level(200, 2.9, 0.05), learning_rate=make.peaked(200, 1e-3)),
                outputs=make.answered_blindly(),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same stage, and it learns
                settings=make.configured(
                    "llama-factory", freeze_vision=True, freeze_language=True, freeze_projector=False, learning_rate=1e-3
                ),
                metrics=make.ran(loss=make.falling(300, 5.0, 2.4), learning_rate=make.peaked(300, 1e-3)),
            ),
            Evidence(  # as flat, with the language model in training: another stage
                settings=make.configured("llama-factory", freeze_vision=True, freeze_language=False, freeze_projector=False),
                metrics=make.ran(loss=make.level(300, 3.4, 0.08), learning_rate=make.peaked(300, 2e-5)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        alone = _projector_alone(seen)
        if alone is None:
            return self.not_checked("settings")
        if not alone:
            return self.ruled_out(say("more than the projector is trained", "训的不只是投影层", -6.0, section="settings"))
        moving = falls(seen)
        if moving is not None:
            return self.ruled_out(moving)
        still = flat(seen, weight=4.0)
        if not still or shape_of(seen).nan_from is not None:
            return self.not_checked("metrics")
        stage = (*setting(seen, "freeze_language", 2.0), *setting(seen, "freeze_vision", 1.0))
        sight = blind(seen)
        rate = learning_rate(seen)
        low = rate_exhibit(seen, 0.0) if rate is not None and rate < 2e-4 else ()
        return conclude(self, (*still, *stage, *low, *((sight,) if sight is not None else ())), proof=True)


def _projector_alone(seen: Evidence) -> bool | None:
    """Whether this run trains the projector and nothing else; None where nothing says."""
    if seen.settings is None:
        return None
    for key in STAGE_ONE:
        held = seen.settings.unknown.get(key)
        if held is not None and str(held.value).lower() in {"true", "1", "yes"}:
            return True
    language, tower, projector = (seen.settings.flag(name) for name in ("freeze_language", "freeze_vision", "freeze_projector"))
    if language is None:
        return None
    return bool(language and tower is not False and not projector)
