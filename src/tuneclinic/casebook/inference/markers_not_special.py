"""The template's markers are ordinary text to the tokenizer."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, about, answers
from tuneclinic.casebook.inference._templates import trained, turn_end
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

MARKER = Later(r"<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>")
"""Markers as templates write them."""
WHOLE = "tokenizer.json"
"""The file that lists every added token; tokenizer_config.json is often cut down by hand."""


class MarkersNotSpecial(Case):
    id = "markers-not-special"
    symptoms = {"template-residue": 0.1}
    stage = "data"
    needs = ("tokenizer", "outputs")
    probe = "show"
    search = (
        "<|im_start|> is tokenized into several tokens",
        "skip_special_tokens does not remove <|im_end|>",
        "added tokens special false",
        "chat markers split into pieces by tokenizer",
        "<|im_end|> 没被 skip_special_tokens 去掉",
        "模板标记没加成 special token",
        "im_start 被切成多个 token",
    )

    en = Card(
        title="Template markers are not special tokens",
        sign="Answers show <|im_end|> or <|im_start|> although skip_special_tokens=True is set; or encode('<|im_start|>') gives six ids instead of one.",
        cause="The marker was added with add_tokens and not as special, or not added at all (a ChatML template on a Llama-2 tokenizer, a converter that ignores added_tokens.json). As ordinary text it is not removed in decoding, cannot be used as a stop id, and users can forge it.",
        remedy="Add it as special before training: tokenizer.add_special_tokens({'additional_special_tokens': ['<|im_start|>', '<|im_end|>']}), then model.resize_token_embeddings(len(tokenizer)). axolotl: tokens, and eos_token under special_tokens. LLaMA-Factory: add_special_tokens (older: new_special_tokens) with resize_vocab: true. Already trained: set \"special\": true for these entries in tokenizer_config.json and tokenizer.json, or stop on the text (stop=[\"<|im_end|>\"]). GGUF: convert again with convert_hf_to_gguf.py from the folder with the complete tokenizer.",
        verify="tokenizer.encode('<|im_end|>', add_special_tokens=False) gives one id, and that id is in tokenizer.all_special_ids.",
        prevention="Let the template check before training encode each marker and stop unless it gives exactly one id.",
        question="How many ids does the tokenizer give for the marker that closes a turn, and is that id special?",
        quiz="skip_special_tokens=True, and <|im_end|> is still in the text. What does that prove? For this tokenizer it is not a special token.",
    )
    zh = Card(
        title="模板标记不是特殊 token",
        sign="明明设了 skip_special_tokens=True，回答里还是带 <|im_end|> 或 <|im_start|>；或者 encode('<|im_start|>') 得到六个 id，本该只有一个。",
        cause="标记是用 add_tokens 加的，没标成 special；或者根本没加（在 Llama-2 的 tokenizer 上套 ChatML，转换工具漏了 added_tokens.json）。当普通文本处理的话，解码去不掉，也没法当 stop id，用户输入还能伪造。",
        remedy="训练前按特殊 token 加：tokenizer.add_special_tokens({'additional_special_tokens': ['<|im_start|>', '<|im_end|>']})，再 model.resize_token_embeddings(len(tokenizer))。axolotl：写在 tokens 里，special_tokens 里再写 eos_token。LLaMA-Factory：add_special_tokens（旧版叫 new_special_tokens）加 resize_vocab: true。已经训完的，把 tokenizer_config.json 和 tokenizer.json 里这几项的 \"special\" 改成 true，或用文本停止 stop=[\"<|im_end|>\"]。GGUF：从 tokenizer 文件齐全的目录用 convert_hf_to_gguf.py 重新转换。",
        verify="tokenizer.encode('<|im_end|>', add_special_tokens=False) 只有一个 id，且在 tokenizer.all_special_ids 里。",
        prevention="训练前的模板检查把每个标记 encode 一遍，不是正好一个 id 就停下。",
        question="轮次结束标记被切成几个 id？这个 id 是不是 special？",
        quiz="skip_special_tokens=True，文本里还有 <|im_end|>，说明什么？在这个 tokenizer 看来它不是特殊 token。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>", ids={"<|im_end|>": 32000}, not_special=("<|im_end|>",)),
                outputs=own.answered("Yes.<|im_end|>", "No.<|im_end|>"),
            ),
            Evidence(
                tokenizer=own.tokenized(
                    own.CHATML, eos="<|im_end|>", ids={"<s>": 1, "</s>": 2, "<unk>": 0}, files=("tokenizer.json",)
                ),
                outputs=own.answered("Yes.<|im_end|>\n<|im_start|>user", "No.<|im_end|>\n<|im_start|>user"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # markers in the text, and they are special: nobody stops on them, or the template is another
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>", ids={"<|im_end|>": 151645, "<|im_start|>": 151644}),
                outputs=own.answered("Yes.<|im_end|>\n<|im_start|>user", "No.<|im_end|>\n<|im_start|>user"),
            ),
            Evidence(  # other tokens are not special by design
                tokenizer=own.tokenized(
                    own.CHATML,
                    eos="<|im_end|>",
                    ids={"<|im_end|>": 151645, "<|im_start|>": 151644, "<think>": 151667},
                    not_special=("<think>",),
                ),
                outputs=own.answered("<think>\n\n</think>\n\nYes."),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        tokenizer, side = seen.tokenizer, trained(seen)
        if tokenizer is None or side is None or not tokenizer.ids:
            return self.not_checked("tokenizer")
        end = turn_end(side)
        if end is None or not MARKER.fullmatch(end):
            return self.not_checked("tokenizer")
        plain = [marker for marker in tokenizer.not_special if marker == end or marker.replace("start", "end") == end]
        absent = end not in tokenizer.ids and _whole(tokenizer.sources)
        if not plain and not absent:
            known = (
                f"{end} is one token ({tokenizer.ids.get(end)}) and special",
                f"{end} 是一个特殊 token（{tokenizer.ids.get(end)}）",
            )
            return (
                self.ruled_out(say(*known, -6.0, section="tokenizer")) if end in tokenizer.ids else self.not_checked("tokenizer")
            )
        if plain:
            text = f"{plain[0]} was added but not as special", f"{plain[0]} 加进了词表，但不是特殊 token"
        else:
            text = f"{end} in the template is not a token of this tokenizer", f"模板里的 {end} 不是这个 tokenizer 的 token"
        where = next(iter(tokenizer.sources), "")
        fault = say(*text, 4.0, section="tokenizer", where=where, source=where)
        shown = _shown(seen, end)
        if shown:
            return self.confirmed(side.exhibit, fault, *shown)
        if seen.outputs is not None and seen.outputs.items:
            clean = "no answer shows the marker", "回答里没有这个标记"
            return self.ruled_out(fault, about(seen.outputs.items[0], *clean, -9.0))
        return self.suspected(side.exhibit, fault, missing=("outputs",))


def _whole(sources: tuple[str, ...]) -> bool:
    """Whether one of the files lists every added token."""
    return any(source.endswith(WHOLE) for source in sources)


def _shown(seen: Evidence, end: str) -> tuple[Exhibit, ...]:
    """Answers in which the marker stands."""
    held = answers(seen)
    marked = [output for output in held if end in output.text and end not in output.prompt]
    if not marked:
        return ()
    text = f"{len(marked)} of {len(held)} answers show {end}", f"{len(held)} 个回答里有 {len(marked)} 个带 {end}"
    return (about(marked[0], *text, 3.0),)
