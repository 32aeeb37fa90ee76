"""Packed samples see each other."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, quoted, say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

SEPARATING = ("flash_attention", "fa2", "fa3", "flash_attn", "flex", "true", "kernels-community")
"""Attention implementations that take the borders of packed samples from the position ids."""


class PackingContaminates(Case):
    id = "packing-contaminates"
    symptoms = {"parrots": 0.05}
    needs = ("settings", "log")
    probe = "show"
    change = {"packing": False}
    signatures = (
        r"you are using packing, but the attention implementation is not set",
        r"packing.{0,400}lead to cross.?contamination",
        r"sample_packing without flash.{0,120}does not handle cross.?sample decontamination",
    )
    search = (
        "sample packing cross contamination",
        "packing without flash attention",
        "neat_packing block diagonal mask",
        "packed sequences attend to each other",
        "packing 样本互相看见",
        "打包训练样本串味",
        "neat_packing 没开",
        "packing 之后效果变差",
    )

    en = Card(
        title="Packed samples see each other",
        sign="With packing the model mixes in content from unrelated questions, answers twice, or is a little worse than without it. The loss looks slightly better.",
        cause="Several samples share one row. Without a block mask each sample attends to the ones before it. Flash attention with position_ids keeps them apart, and recent transformers does so for sdpa and eager too, if no attention_mask is passed. Older versions, or a full attention_mask, do not.",
        remedy="LLaMA-Factory: neat_packing: true together with packing: true. TRL: SFTConfig(packing=True, packing_strategy='bfd') with attn_implementation='flash_attention_2'; not 'wrapped', which also cuts samples. axolotl: sample_packing: true with flash attention (flash_attention: true, newer: attn_implementation: flash_attention_2). Or turn packing off.",
        verify="The loss of a sample in the middle of a packed row equals its loss when it is alone.",
        prevention="After every framework upgrade compare the loss of two packed samples with the loss of the same two apart.",
        question="Is packing on, and which attention implementation runs with it?",
        quiz="Pre-training packs without a block mask. Why is it a fault in SFT? There the answer must depend only on its own prompt.",
    )
    zh = Card(
        title="packing 让样本互相看见",
        sign="开了 packing 之后，模型会混进不相干问题的内容、一次答两题，或者效果比不开略差；loss 反而好看一点。",
        cause="多条样本拼在一行里，没有分块掩码，后面的样本就能看到前面的。flash attention 配 position_ids 会把它们隔开；新版 transformers 在不传 attention_mask 时，sdpa、eager 也会隔开；旧版本或传了全 1 的 attention_mask 就不会。",
        remedy="LLaMA-Factory：packing: true 的同时开 neat_packing: true。TRL：SFTConfig(packing=True, packing_strategy='bfd') 配 attn_implementation='flash_attention_2'，不要用会切断样本的 'wrapped'。axolotl：sample_packing: true 配 flash attention（flash_attention: true，新版写 attn_implementation: flash_attention_2）。或者干脆关掉 packing。",
        verify="同一条样本，放在一行中间和单独算，loss 相同。",
        prevention="框架每升级一次，就拿两条样本打包和分开各算一次 loss，对一下。",
        question="packing 开了吗？用的是哪种 attention 实现？",
        quiz="预训练打包也不加分块掩码，为什么 SFT 里就是问题？SFT 的回答只应该取决于自己的 prompt。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                log=run.logged(
                    "You are using packing, but the attention implementation is not set to 'flash_attention_2'. Packing flattens batches into a single sequence, and other attention implementations may lead to cross-contamination between batches."
                ),
                settings=run.configured("trl", packing=True, attention="sdpa"),
            ),
            Evidence(
                log=run.logged(
                    "WARNING sample_packing without flash, sdp, xformers or flex attention does not handle cross sample decontamination."
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(settings=run.configured("llama-factory", packing=True, neat_packing=True)),
            Evidence(settings=run.configured("axolotl", packing=True, attention="flash_attention_2"), outputs=make.endless()),
            Evidence(settings=run.configured("trl", packing=False, attention="sdpa")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = quoted(self, seen)
        if named:
            return self.confirmed(*named, *setting(seen, "packing"), *setting(seen, "attention"))
        settings = seen.settings
        packing = settings.flag("packing") if settings is not None else None
        if settings is None or packing is None:
            return self.not_checked("settings")
        if not packing:
            return self.ruled_out(*setting(seen, "packing", -8.0))
        return conclude(self, (*setting(seen, "packing"), *_separated(seen)), missing=("log",))


def _separated(seen: Evidence) -> tuple[Exhibit, ...]:
    """Whether the packed samples are kept apart."""
    settings = seen.settings
    attention = text_of(seen, "attention")
    if settings is None:
        return ()
    if settings.flag("neat_packing") or settings.flag("padding_free"):
        return setting(seen, "neat_packing" if settings.flag("neat_packing") else "padding_free", -6.0)
    if settings.framework == "llama-factory":
        if text_of(seen, "stage") == "pt":
            return setting(seen, "stage", -6.0)
        return (
            say(
                "packing without neat_packing: no block mask",
                "开了 packing 没开 neat_packing：没有分块掩码",
                4.0,
                section="settings",
            ),
        )
    if any(name in attention for name in SEPARATING):
        return setting(seen, "attention", -6.0)
    if settings.framework == "axolotl":
        return ()
    return setting(seen, "attention", 3.0)
