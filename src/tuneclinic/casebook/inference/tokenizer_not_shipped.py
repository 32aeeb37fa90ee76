"""The weights were shipped without the tokenizer that they were trained with."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, folder, texts, whole_models
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, lines, say, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Tokenizer

ADDED = (r"resized token embeddings from \d+ to \d+", r"add(?:ed)? \d+ (?:new |special )?tokens? to (?:the )?(?:tokenizer|vocab)")
"""What trainers print when the vocabulary grows."""
MISSING = Later(
    r"(?i)can't load tokenizer for '([^']{1,300})'|unable to load vocabulary from file|file not found: (\S*tokenizer\.model)"
)
CONVERTED = r"bpe pre-tokenizer was not recognized|generation quality will be degraded"
"""llama.cpp's converter and loader on a tokenizer whose fingerprint it does not know, as after tokens were added or files exchanged."""
LOCAL = Later(r"^[./~]|^[A-Za-z]:\\|checkpoint|merge|output|lora|sft|export|/.*/")
"""What a path of one's own looks like, against a name on a hub that a network error speaks of."""


class TokenizerNotShipped(Case):
    id = "tokenizer-not-shipped"
    symptoms = {"worse-after-merge": 0.1}
    stage = "environment"
    needs = ("weights", "tokenizer", "crash", "log")
    probe = "weights"
    signatures = (CONVERTED,)
    search = (
        "Can't load tokenizer for merged model",
        "merged folder has no tokenizer files",
        "WARNING: The BPE pre-tokenizer was not recognized",
        "wrong tokenizer after merging, added tokens missing",
        "合并后的目录没有 tokenizer",
        "tokenizer 没一起保存",
        "新增 token 合并后不见了",
        "转 GGUF 报 pre-tokenizer was not recognized",
    )

    en = Card(
        title="The weights come without their tokenizer",
        sign="The merged folder holds model.safetensors and config.json but no tokenizer files. Loading fails, or the base model's tokenizer is used instead and new markers are split into pieces.",
        cause="model.save_pretrained saves only the model. If tokens were added or the template was changed in training, the base model's tokenizer does not know them, and the embedding rows that were trained are never used.",
        remedy='Save both into one folder: tokenizer.save_pretrained("merged") with the tokenizer of training (it is in the adapter or checkpoint folder), together with generation_config.json; for a VLM also processor.save_pretrained("merged"). vLLM can be pointed to it: --tokenizer out/adapter. GGUF: add the files, then run convert_hf_to_gguf.py again; if it does not recognise the tokenizer although no token was added, use the base model\'s tokenizer.json.',
        verify='len(AutoTokenizer.from_pretrained("merged")) is not larger than the number of embedding rows, and each new token encodes to one id.',
        prevention="Let one function save model, tokenizer, template and generation configuration, and let the release check load from that folder only.",
        question="Which files are next to the merged weights: tokenizer.json, tokenizer_config.json, chat_template.jinja?",
        quiz="Two tokens were added in training, and the merged model runs with the base tokenizer. What does <|tool|> become? Several ordinary pieces; the trained row is never used.",
    )
    zh = Card(
        title="没有随权重发布 tokenizer",
        sign="合并后的目录里只有 model.safetensors 和 config.json，没有 tokenizer 文件。要么加载失败，要么拿 base 的 tokenizer 顶上，新加的标记被切成碎片。",
        cause="model.save_pretrained 只存模型。训练时加过 token、改过模板的话，base 的 tokenizer 里都没有，训练过的那几行 embedding 根本用不到。",
        remedy='存到同一个目录：用训练时的 tokenizer（adapter 或 checkpoint 目录里有）执行 tokenizer.save_pretrained("merged")，generation_config.json 也带上；多模态再 processor.save_pretrained("merged")。vLLM 可以用 --tokenizer out/adapter 指过去。GGUF：先把文件补齐，再跑 convert_hf_to_gguf.py；没加过 token 它却不认识这个 tokenizer 的，换回 base 的 tokenizer.json。',
        verify='len(AutoTokenizer.from_pretrained("merged")) 不超过 embedding 行数，每个新 token 都编码成一个 id。',
        prevention="模型、tokenizer、模板、生成配置由同一个函数保存；发布检查只从该目录加载。",
        question="合并后的权重旁边有哪些文件：tokenizer.json、tokenizer_config.json、chat_template.jinja？",
        quiz="训练时加了两个 token，合并后用 base 的 tokenizer，<|tool|> 会变成什么？几个普通碎片，训练过的那一行用不上。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "OSError",
                    "Can't load tokenizer for './merged'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
                )
            ),
            Evidence(
                weights=own.model_file("model.embed_tokens.weight", source="merged/model.safetensors"),
                log=make.logged("Resized token embeddings from 32000 to 32064."),
                serving=own.served(model="out/merged"),
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                weights=own.model_file("model.embed_tokens.weight", source="model.safetensors"),
                log=make.logged("Resized token embeddings from 32000 to 32064."),
                serving=own.served(model="out/merged"),
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>"),
            ),
            Evidence(  # lost in the merge, and the tokenizer lies beside the weights: another cause
                weights=own.model_file("model.embed_tokens.weight", source="merged/model.safetensors"),
                tokenizer=Tokenizer(eos="<|im_end|>", sources=("merged/tokenizer_config.json",)),
                scores=own.scored(("contracts", 0.81), ("contracts (merged)", 0.55)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = (*_told(seen), *lines(seen, CONVERTED, weight=8.0))
        if told:
            return self.confirmed(*told)
        models = whole_models(seen)
        if not models:
            return self.not_checked("weights")
        beside = {folder(source) for source in seen.tokenizer.sources} if seen.tokenizer is not None else set()
        bare = [source for source, _ in models if folder(source) not in beside]
        if not bare:
            text = "tokenizer files are next to the weights", "权重旁边有 tokenizer 文件"
            return self.ruled_out(say(*text, -7.0, section="weights", where=models[0][0], source=models[0][0]))
        changed = (*lines(seen, *ADDED, weight=3.0), *setting(seen, "new_tokens", 3.0), *facts(seen, "embeddings-not-saved", "tokens-added-without-resize", weight=3.0))  # fmt: skip
        if not changed or not folder(bare[0]):
            return self.not_checked("tokenizer", exhibits=changed)
        text = f"there is no tokenizer file next to {bare[0]}", f"{bare[0]} 旁边没有 tokenizer 文件"
        alone = say(*text, 3.0, section="weights", where=bare[0], source=bare[0])
        serving = seen.serving.model if seen.serving is not None else None
        if serving is not None and serving.rstrip("/").rsplit("/", 1)[-1] == folder(bare[0]).rsplit("/", 1)[-1]:
            place = seen.serving.places.get("model", "") if seen.serving is not None else ""
            used = say(f"the server loads {serving}", f"推理端加载的是 {serving}", 3.0, section="serving", where=place)
            return self.confirmed(alone, *changed, used)
        return self.suspected(alone, *changed, missing=("serving",))


def _told(seen: Evidence) -> tuple[Exhibit, ...]:
    """The loader's own error, where it speaks of a folder of one's own."""
    for text, where, source, section in texts(seen):
        match = MISSING.search(text)
        if match and (match[1] is None or LOCAL.search(match[1])):
            return (Exhibit(text.strip()[:200], where, source, weight=9.0, section=section),)
    return ()
