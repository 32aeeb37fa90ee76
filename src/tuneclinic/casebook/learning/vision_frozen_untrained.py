"""The vision side was frozen all along."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say, setting
from tuneclinic.casebook.learning._sight import blind
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class VisionFrozenUntrained(Case):
    id = "vision-frozen-untrained"
    symptoms = {"blind-to-image": 0.05}
    stage = "hyperparameters"
    needs = ("settings", "outputs")
    probe = "image"
    change = {"freeze_projector": False}
    search = (
        "freeze_vision_tower true vlm ignores image",
        "freeze_vit freeze_aligner",
        "视觉塔冻结 模型看不懂图",
        "VLM 微调 freeze_vit 冻结 视觉没学到",
    )

    en = Card(
        title="The vision side was never trained",
        sign="Answers are fluent and in the right format, but the same for different images of your domain (X-rays, screenshots, charts). Vision tower and projector are both frozen in the configuration.",
        cause="The vision tower knows photographs from the web. If it cannot tell two images apart, the language model behind it cannot either. With tower and projector frozen, images of your domain keep giving nearly the same features, and training only taught the language model to guess.",
        remedy="Unfreeze the projector first: freeze_multi_modal_projector: false (LLaMA-Factory), --freeze_aligner false (ms-swift). If your images are very different from photographs, unfreeze the tower too (freeze_vision_tower: false, --freeze_vit false), with a learning rate ten times lower (2e-6 to 1e-5).",
        verify="The answer changes when the image is replaced by a blank or a wrong one, and accuracy on questions that need the image rises above that of a text-only run.",
        prevention="Before you decide what to train, ask: are my images like those the tower was trained on? Keep a fixed test with a real, a blank and a wrong image.",
        question="Which of vision tower, projector and language model are frozen, and does the answer change with a blank image?",
        quiz="The tower is frozen and the images are holiday photographs. Is that a fault? No. Tower and projector frozen on circuit diagrams, with the same answer for all of them, is one.",
    )
    zh = Card(
        title="视觉部分一直冻着没训",
        sign="回答流畅、格式也对，但换一张领域图片（X 光、截图、图表）答案还是一样；配置里视觉塔和 projector 都是冻结的。",
        cause="视觉塔只熟悉网上的照片，它分不清的，后面的语言模型也分不清：视觉塔和 projector 都冻着，领域图片进来的特征几乎一样，训练只教会语言模型去猜。",
        remedy="先解冻 projector：LLaMA-Factory 设 freeze_multi_modal_projector: false，ms-swift 用 --freeze_aligner false；图片和普通照片差得远，再解冻视觉塔（freeze_vision_tower: false、--freeze_vit false），学习率小十倍（2e-6～1e-5）。",
        verify="换成空白图或错图，答案会变；依赖图片的题目准确率高于纯文本训练。",
        prevention="决定训哪些部分之前先问：我的图和视觉塔见过的像不像？固定留一套“真图、空白图、错图”的测试。",
        question="视觉塔、projector、语言模型哪些是冻结的？换成空白图答案变不变？",
        quiz="度假照片任务冻结视觉塔，是问题吗？不是。电路图任务视觉塔和 projector 全冻、所有图一个答案，才是。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", freeze_vision=True, freeze_projector=True),
                outputs=make.answered_blindly(),
            ),
            Evidence(
                settings=make.configured("ms-swift", freeze_vision=True, freeze_projector=True),
                outputs=make.answered_blindly("普通胸片"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as blind, with a trained projector
                settings=make.configured("llama-factory", freeze_vision=True, freeze_projector=False),
                outputs=make.answered_blindly(),
            ),
            Evidence(  # as frozen, and it sees
                settings=make.configured("llama-factory", freeze_vision=True, freeze_projector=True),
                outputs=make.answered_seeing(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        tower = seen.settings.flag("freeze_vision") if seen.settings is not None else None
        projector = seen.settings.flag("freeze_projector") if seen.settings is not None else None
        if tower is False or projector is False:
            return self.ruled_out(
                *setting(seen, "freeze_vision"),
                *setting(seen, "freeze_projector"),
                say("part of the vision side is trainable", "视觉部分有在训", -6.0, section="settings"),
            )
        sight = blind(seen)
        if sight is not None and sight.weight < 0:
            return self.ruled_out(sight)
        frozen = (*setting(seen, "freeze_vision", 2.0), *setting(seen, "freeze_projector", 2.0))
        if not tower or not projector:
            return self.not_checked("settings", exhibits=frozen)
        if sight is None:
            return self.not_checked("outputs", exhibits=frozen)
        return self.confirmed(*frozen, sight)
