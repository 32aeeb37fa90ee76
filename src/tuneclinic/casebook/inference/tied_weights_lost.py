"""The tie between input embeddings and output head was lost in saving, merging or converting."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, whole_models
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import lines, quoted, say, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Adapter

HEAD = Later(r"(?:^|\.)(?:lm_head|embed_out)(?:\.|$)")
INPUT = Later(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in)(?:\.|$)")
ENDS = ("lm_head", "embed_tokens", "embed_out", "wte")
WARNED = r"model with `?tie_word_embeddings=true`? and the .{0,80}are part of the adapter"
"""PEFT's warning that an adapter covers one of two tied matrices."""


class TiedWeightsLost(Case):
    id = "tied-weights-lost"
    symptoms = {"worse-after-merge": 0.12, "crashes": 0.01}
    stage = "environment"
    needs = ("weights", "log", "crash", "model")
    probe = "weights"
    signatures = (
        r"newly initialized: \[['\"](?:\w+\.)*(?:lm_head|embed_out)\.weight['\"]\]",
        r"there is no module or parameter named ['\"]?(?:\w+\.)*lm_head",
        r"some tensors share memory, this will lead to duplicate memory",
        r"contained shared tensors .{0,600}mismatching the transformers base config",
        r"keyerror: ['\"](?:\w+\.)*lm_head\.weight['\"]",
    )
    search = (
        "tie_word_embeddings lm_head missing after merge",
        "lm_head.weight newly initialized",
        "Some tensors share memory, this will lead to duplicate memory on disk",
        "there is no module or parameter named lm_head vllm",
        "合并后 lm_head 丢失",
        "tie_word_embeddings 不一致",
        "权重共享 lm_head embed_tokens 合并掉点",
    )

    en = Card(
        title="The tied lm_head was lost",
        sign="After merging or converting, answers are random words or clearly worse; the log shows 'newly initialized: lm_head.weight', or vLLM finds no parameter named lm_head. It mostly hits small models (0.5B to 3B), whose embedding and lm_head are tied.",
        cause="With tie_word_embeddings one matrix is used as input embedding and as lm_head and is stored once. If the adapter trained only one of the two (lm_head in modules_to_save or target_modules), they differ after the merge; the loader ties them again and drops one. If the config says untied but the file holds one matrix, lm_head starts at random.",
        remedy='Decide which you want. Tied: leave lm_head and embed_tokens out of modules_to_save, or set ensure_weight_tying=True in recent PEFT\'s LoraConfig. Untied: load the base with tie_word_embeddings=False, copy the matrix (model.lm_head.weight = nn.Parameter(embed.weight.clone())), merge, and save with "tie_word_embeddings": false in config.json. If saving stops at shared tensors, use model.save_pretrained() or safetensors.torch.save_model instead of save_file.',
        verify="config.json and the file agree: tied has no lm_head.weight in the file, untied has both; logits before and after the merge agree.",
        prevention="After each merge load the result from disk again and compare logits with that, never with the object in memory.",
        question="What does tie_word_embeddings say in config.json, and does the file list lm_head.weight and embed_tokens.weight?",
        quiz="The file of a tied model has no lm_head.weight. Is it lost? No: the matrix is stored once, as it should be.",
    )
    zh = Card(
        title="共享的 lm_head 丢了",
        sign="合并或转换之后输出乱码或明显变差；日志里有 newly initialized: lm_head.weight，或 vLLM 报找不到 lm_head。多见于 embedding 与 lm_head 共享权重的小模型（0.5B～3B）。",
        cause="tie_word_embeddings 时，同一份矩阵既当输入 embedding 又当 lm_head，只存一次。adapter 只训了其中一个（lm_head 写进了 modules_to_save 或 target_modules），合并后两者已经不同，加载时又被绑回去、丢掉一个。反过来，config 写着不共享、文件里却只有一份，lm_head 就是随机初值。",
        remedy='先定下来要哪种。共享：modules_to_save 里不要放 lm_head、embed_tokens，或在新版 PEFT 的 LoraConfig 里设 ensure_weight_tying=True。不共享：加载 base 时传 tie_word_embeddings=False，复制一份（model.lm_head.weight = nn.Parameter(embed.weight.clone())），合并后保存，config.json 写 "tie_word_embeddings": false。保存时报共享张量的，用 model.save_pretrained() 或 safetensors.torch.save_model，不要用 save_file。',
        verify="config.json 与文件一致：共享时文件里没有 lm_head.weight，不共享时两个都在；合并前后 logits 一致。",
        prevention="每次合并后从磁盘重新加载再比 logits，不要拿内存里的对象比。",
        question="config.json 的 tie_word_embeddings 是什么？权重文件里有没有 lm_head.weight 和 embed_tokens.weight？",
        quiz="共享权重的模型文件里没有 lm_head.weight，丢了吗？没丢，本来就只存一份。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(  # an untied head that is not in the file
                weights=own.model_file("model.embed_tokens.weight"),
                model=make.modelled(architecture="LlamaForCausalLM", tied=False, places={"tied": "config.json:21"}),
            ),
            Evidence(  # tied by configuration, and the adapter trained both apart
                weights=own.model_file("model.embed_tokens.weight", "lm_head.weight"),
                model=make.modelled(
                    architecture="Qwen2ForCausalLM",
                    tied=True,
                    adapter=Adapter(rank=8, modules_to_save=("lm_head", "embed_tokens")),
                ),
            ),
            Evidence(
                log=make.logged(
                    "Some weights of LlamaForCausalLM were not initialized from the model checkpoint at merged and are newly initialized: ['lm_head.weight']"
                )
            ),
            Evidence(
                crash=make.crashed(
                    "KeyError", "'lm_head.weight'", "site-packages/vllm/models/qwen2.py:349 in load_weights", phase="load"
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # tied and stored once
                weights=own.model_file("model.embed_tokens.weight"),
                model=make.modelled(architecture="Qwen2ForCausalLM", tied=True),
            ),
            Evidence(
                weights=own.model_file("model.embed_tokens.weight", "lm_head.weight"),
                model=make.modelled(architecture="LlamaForCausalLM", tied=False),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        tied = seen.model.tied if seen.model is not None else None
        told = [exhibit for exhibit in quoted(self, seen) if not (tied and _new_head(exhibit))]
        if told:
            return self.confirmed(*told)
        warned = lines(seen, WARNED, weight=3.0)
        generates = seen.model is not None and re.search(r"CausalLM|ConditionalGeneration|LMHead", seen.model.architecture or "")
        for source, names in whole_models(seen) if tied is not None and generates else ():
            head, embedding = (any(pattern.search(name) for name in names) for pattern in (HEAD, INPUT))
            if not embedding:
                continue
            exhibit = _shown(source, tied=bool(tied), head=head)
            if not tied and not head:
                return self.confirmed(exhibit, *warned) if _stated(seen) else self.not_checked("model")
            if tied and head:
                trained = _trained(seen)
                return self.confirmed(exhibit, *trained) if trained else self.suspected(exhibit, *warned, missing=("scores",))
            return self.ruled_out(exhibit) if not warned else self.suspected(*warned, missing=("scores",))
        if warned:
            return self.suspected(*warned, missing=("weights",))
        return self.not_checked("weights", "model")


def _new_head(exhibit: Exhibit) -> bool:
    """The warning of a new head, which a tied model prints and then fills from its embeddings."""
    text = exhibit.text if isinstance(exhibit.text, str) else exhibit.text.en
    return "newly initialized" in text.lower()


def _stated(seen: Evidence) -> bool:
    """Whether the configuration itself says "untied", for a plain language model: a family's default may be another."""
    return seen.model is not None and "tied" in seen.model.places and not seen.model.vision


def _shown(source: str, *, tied: bool, head: bool) -> Exhibit:
    """What the configuration says beside what the file lists."""
    en = f"tie_word_embeddings is {str(tied).lower()}, and the file has {'a' if head else 'no'} separate lm_head"
    zh = f"tie_word_embeddings 是 {str(tied).lower()}，文件里{'有' if head else '没有'}单独的 lm_head"
    weight = 8.0 if not tied and not head else 2.0 if tied and head else -7.0
    return say(en, zh, weight, section="weights", where=source, source=source)


def _trained(seen: Evidence) -> tuple[Exhibit, ...]:
    """An adapter that covers one of the two matrices or both, as matrices of their own."""
    adapter = seen.model.adapter if seen.model is not None else None
    listed = ",".join(adapter.modules_to_save) if adapter is not None else ""
    listed = listed or text_of(seen, "modules_to_save")
    if not any(name in listed for name in ENDS):
        return ()
    where = adapter.source if adapter is not None else ""
    return (say(f"modules_to_save: {listed[:80]}", f"modules_to_save：{listed[:80]}", 5.0, section="model", where=where),)
