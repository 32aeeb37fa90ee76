"""The place in the data was not restored."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, lines, quoted
from tuneclinic.casebook.learning._resume import jump, no_jump, resumes, smooth
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_setting
from tuneclinic.sections import Setting, Settings


class SamplerPositionLost(Case):
    id = "sampler-position-lost"
    symptoms = {"resume-jumps": 0.12}
    stage = "environment"
    needs = ("settings", "script", "log", "metrics")
    probe = "resume"
    signatures = (
        r"(cannot|could not|unable to|failed to) (skip|fast-?forward|restore) .{0,60}(dataloader|sampler|batches)",
        r"sampler (state|position) .{0,40}(not found|not restored|missing|lost)",
    )
    search = (
        "loss drops after resuming from checkpoint",
        "ignore_data_skip",
        "data repeats after resume",
        "续训后 loss 反而降低",
        "恢复训练后数据从头开始",
        "断点续训 数据重复",
    )

    en = Card(
        title="The position in the data was lost",
        sign="After the resume the loss is lower than before, as if the model had learned during the pause, or it steps down again at the old epoch border. Some rows are seen twice, others never.",
        cause="The dataloader started again at the first row, or with another shuffle: ignore_data_skip, a random sampler without a seed, a streaming data set that was not moved forward, or an older accelerate that resets the sampler's epoch when it skips batches.",
        remedy="Set ignore_data_skip: false, and keep the same seed and data_seed. In your own loop restore the position: with accelerate skipped = accelerator.skip_first_batches(loader, n) and then skipped.set_epoch(epoch), called on the new loader; without accelerate a StatefulDataLoader with its saved state.",
        verify="Log the row ids of the first three batches after the resume: they continue the order of an uninterrupted run.",
        prevention="Log row ids, or a hash of input_ids, at every step; let the ten-step resume test compare them.",
        question="Does the loss fall at the resume, and are the first rows after it the first rows of the epoch again?",
        quiz="The loss falls right after a resume. Is that good news? No: only rows that the model has already seen do that. Data is repeated.",
    )
    zh = Card(
        title="续训后数据位置没恢复",
        sign="恢复后 loss 比中断前还低，好像停机期间学到了东西，或者在原来的 epoch 交界处又掉一截。一部分样本看了两遍，另一部分一遍没看。",
        cause="dataloader 从第一条重新开始，或换了一种打乱顺序：开了 ignore_data_skip、随机采样器没固定种子、流式数据没有往前跳，或旧版 accelerate 跳过 batch 时把 sampler 的 epoch 重置了。",
        remedy="设 ignore_data_skip: false，seed 和 data_seed 保持一致。手写循环要自己恢复位置：用 accelerate 就 skipped = accelerator.skip_first_batches(loader, n)，再对这个新 loader 调 skipped.set_epoch(epoch)；不用 accelerate 就用 StatefulDataLoader，保存并恢复它的状态。",
        verify="打印恢复后前三个 batch 的样本 id，应当接着不中断时的顺序。",
        prevention="每步记录样本 id 或 input_ids 的哈希，十步续训测试里对一遍。",
        question="恢复后 loss 是不是变低了？最先看到的样本是不是又从头开始？",
        quiz="一恢复训练 loss 就降，是好事吗？不是：只有见过的样本才会这样，数据重复喂了。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=Settings(
                    {"resume": Setting("out/checkpoint-300", "train.yaml:8", "train.yaml", "resume_from_checkpoint")},
                    "transformers",
                    unknown={"ignore_data_skip": Setting("true", "train.yaml:9", "train.yaml", "ignore_data_skip")},
                ),
                metrics=make.resumed(factor=0.6, back=0.8),
            ),
            Evidence(
                script=make.scripted("random-sampler-unseeded-resume", quote="loader = DataLoader(train, shuffle=True)"),
                metrics=make.resumed(at=110, factor=0.65, back=0.7),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same setting, and the loss goes up: something else was lost
                settings=make.configured(resume="out/checkpoint-300"),
                metrics=make.resumed(factor=1.6),
            ),
            Evidence(
                script=make.scripted("random-sampler-unseeded-resume"),
                metrics=make.resumed(factor=1.0),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        resumed = resumes(seen)
        if smooth(seen):
            return self.ruled_out(no_jump())
        changed = jump(seen, up=-4.0, down=4.0)
        if changed and changed[0].weight < 0:
            return self.ruled_out(*changed)
        causes = (*quoted(self, seen), *facts(seen, "random-sampler-unseeded-resume", weight=4.0), *_skips(seen))
        if not (resumed or changed):
            return self.not_checked("metrics", exhibits=causes)
        skipped = lines(seen, r"will skip the first \d+ (epochs|batches)", weight=-2.0)
        if not changed and not causes:
            return self.not_checked("metrics", exhibits=(*resumed, *skipped))
        return conclude(self, (*causes, *resumed, *changed, *skipped), proof=bool(causes and changed), missing=("script",))


def _skips(seen: Evidence) -> tuple[Exhibit, ...]:
    """The setting that leaves the loader at the first row."""
    held = seen.settings.unknown.get("ignore_data_skip") if seen.settings is not None else None
    return (from_setting(held, 5.0),) if held is not None and str(held.value).lower() in {"true", "1"} else ()
