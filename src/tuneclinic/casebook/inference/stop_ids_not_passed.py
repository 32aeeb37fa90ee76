"""The server does not stop on the token that training taught as the end."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import about, answers
from tuneclinic.casebook.inference._templates import READS_TOKENIZER, trained, turn_end
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern

CUT = frozenset({"length", "max_tokens", "max_length", "max_new_tokens"})
"""Finish reasons of the usual servers for an answer that was cut at the limit."""
GLUED = 4.0
"""Bits of role words inside answers. A model that never learnt the end token writes on without a header."""
ROLE = pattern(r"\S(?:assistant|user)\n|\n(?:assistant|user)\n")
"""Llama's header leaves the word glued to the answer, ChatML's leaves it on a line of its own."""
FILLING = pattern(r"<\|?(?:fim[_-](?:prefix|suffix|middle|pad)|file_sep|repo_name)\|?>")
"""Markers that code models end a completion with, beside their end token."""
CLOSING = pattern(r"\{\{-?\s*\.(?:Prompt|Content|Response)\s*-?\}\}\s*(<\|\w{1,40}\|>|</s>|<\w{1,40}>)")
"""Ollama's templates: what stands right behind a turn's text."""
THROUGH = 5.0
"""Bits of answers that go on after the end token: only a server that does not stop on it lets that happen."""


class StopIdsNotPassed(Case):
    id = "stop-ids-not-passed"
    symptoms = {"never-stops": 0.14}
    stage = "environment"
    needs = ("serving", "script", "outputs")
    probe = "parity"
    change = {"stop_words": ["<|im_end|>"]}
    search = (
        "vllm does not stop at <|im_end|>",
        "ollama keeps generating after the answer",
        "add eot_id to stop token ids",
        "stop_token_ids not set",
        "推理不停 stop token 没传",
        "ollama 停不下来",
        "vllm 停止符怎么设置",
        "eos_token_id 没传给 generate",
    )

    en = Card(
        title="The server does not get the stop token",
        sign="The answer is right, then the end-of-turn token (or the word 'assistant', if the token itself is hidden) appears in the text and a new turn begins, up to the length limit.",
        cause="The model does write its end token, but the server stops on something else: the base model's eos from config.json or the GGUF header, a client's stop list that replaces the defaults, ignore_eos, or a hand-written loop that never checks.",
        remedy='Pass the end-of-turn token. vLLM: SamplingParams(stop_token_ids=[…]), or both ids as eos_token_id in generation_config.json. SGLang: stop_token_ids in the request. transformers: model.generate(eos_token_id=[turn_end_id, eos_id]). Ollama: PARAMETER stop "<|im_end|>". llama.cpp: --override-kv tokenizer.ggml.eos_token_id=int:ID, or set eos_token in tokenizer_config.json and convert again. A client that sends its own stop list must include this token. Remove ignore_eos=True.',
        verify="finish_reason is stop for nearly every answer, and no text contains the end token.",
        prevention="Keep the stop ids in generation_config.json next to the weights, and let the release check compare them with the last trained token of a row.",
        question="Which token closes a turn in your template, and which stop strings or ids does the server use?",
        quiz="A model prints <|eot_id|> and continues. Does it need more training? No: it ended its turn, but the server did not stop.",
    )
    zh = Card(
        title="停止符没有传给推理端",
        sign="答案本身是对的，随后文本里出现轮次结束符（结束符被隐藏时会露出 assistant 这个词），接着又开新一轮，一直写到长度上限。",
        cause="模型其实已经写出了结束符，只是推理端认的是别的：config.json 或 GGUF 头里 base 的 eos、客户端自带的 stop 列表覆盖了默认值、开了 ignore_eos，或手写的生成循环根本不判断结束。",
        remedy='把轮次结束符传进去。vLLM：SamplingParams(stop_token_ids=[…])，或在 generation_config.json 的 eos_token_id 里写上两个 id。SGLang：请求里给 stop_token_ids。transformers：model.generate(eos_token_id=[结束符 id, eos id])。Ollama：PARAMETER stop "<|im_end|>"。llama.cpp：--override-kv tokenizer.ggml.eos_token_id=int:ID，或改好 tokenizer_config.json 的 eos_token 后重新转换。客户端自己传 stop 列表时，列表里必须有轮次结束符。去掉 ignore_eos=True。',
        verify="绝大多数回答的 finish_reason 是 stop，文本里不再出现结束符。",
        prevention="stop id 写进权重旁边的 generation_config.json，发布检查时与样本最后一个参与训练的 token 比对。",
        question="模板里一轮用哪个 token 收尾？推理端用的 stop 字符串或 stop id 是什么？",
        quiz="模型吐出 <|eot_id|> 之后接着写，需要继续训练吗？不需要，它这一轮已经结束了，是推理端没有停。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(  # a GGUF header that ends on <|endoftext|>, for a model whose turns end with <|im_end|>
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>", ids={"<|im_end|>": 151645, "<|endoftext|>": 151643}),
                serving=own.served("gguf", "model.gguf", eos_id=151643, stop_ids=(151643,), stops=("<|endoftext|>",)),
            ),
            Evidence(  # the client's own stop list, and answers that run through the turn's end
                tokenizer=own.tokenized(own.LLAMA3, eos="<|eot_id|>"),
                serving=own.served("ollama", "Modelfile", stops=("\nQuestion:",)),
                outputs=own.answered("4<|eot_id|>assistant\n\nAnd 5", "6<|eot_id|>assistant\n\nAnd 7", finish="length"),
            ),
            Evidence(
                script=make.scripted("generate-without-stop", quote="params = SamplingParams(max_tokens=512, ignore_eos=True)"),
                outputs=own.answered("yes. And more", "no. And more", "maybe. And more", finish="length"),
            ),
            Evidence(  # a plain loop that never looks for the tokenizer's own end
                tokenizer=own.tokenized("", eos="</s>"),
                script=make.scripted(checked=("generate-without-stop",)),
                outputs=own.answered("4</s> And 5 is", "6</s> And 7 is", finish="length"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the header's eos is another, and the turn's end is among its end tokens all the same
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>", ids={"<|im_end|>": 151645}),
                serving=own.served("gguf", "model.gguf", eos_id=151643, stop_ids=(151643, 151645)),
            ),
            Evidence(  # answers run on although the server stops on the right token: another cause
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>"),
                serving=own.served("ollama", "Modelfile", stops=("<|im_end|>",)),
                outputs=own.answered("yes. And more", "no. And more", finish="length"),
            ),
            Evidence(  # a batch padded with the end token
                tokenizer=own.tokenized("", eos="</s>"),
                script=make.scripted(checked=("generate-without-stop",)),
                outputs=own.answered("4</s></s></s>", "6</s>"),
            ),
            Evidence(script=make.scripted(checked=("generate-without-stop",))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        side = trained(seen)
        end = (turn_end(side) if side is not None else None) or _closing(seen)
        unlistened = facts(seen, "generate-without-stop", weight=3.0)
        mark = end or (seen.tokenizer.eos if seen.tokenizer is not None else None)
        running = _running(seen, mark)
        if unlistened and running:
            return self.confirmed(*unlistened, *running)
        if seen.serving is None or end is None:
            return self.not_checked("outputs", exhibits=unlistened) if unlistened else self._by_script(seen, mark, running)
        listens, shown = _listens(seen, end)
        if listens:
            return self.ruled_out(shown)
        if listens is None:
            ran = any(exhibit.weight >= THROUGH for exhibit in running)
            return self.confirmed(*running, change={"stop_words": [end]}) if ran else self.not_checked("serving")
        through = any(exhibit.weight >= THROUGH for exhibit in running)
        change = {"stop_words": [end]}
        header = seen.serving.stop_ids and seen.serving.stops  # without its texts a header may hold end tokens that were not read
        if header or through:
            return self.confirmed(shown, *running, change=change)
        if seen.tokenizer is not None and seen.tokenizer.eos == end:
            return self.not_checked("outputs")  # a converter hands the tokenizer's eos on, and servers stop on it unasked
        return self.suspected(shown, change=change, missing=("outputs",))

    def _by_script(self, seen: Evidence, mark: str | None, running: tuple[Exhibit, ...]) -> Finding:
        """Without a served template: whether answers run on past the tokenizer's own end token, then what the script says."""
        tokenizer = seen.tokenizer
        token = tokenizer is not None and mark == tokenizer.eos and (not tokenizer.ids or mark in tokenizer.ids)
        if seen.serving is None and token and tokenizer is not None and mark not in tokenizer.not_special:
            past = tuple(exhibit for exhibit in running if exhibit.weight >= THROUGH)
            if past:
                return self.confirmed(*past, change={"stop_words": [mark]})
        checked = clean(seen, "generate-without-stop")
        if checked:
            return self.ruled_out(*checked)
        glued = _glued(seen) or _filling(seen)
        return self.suspected(*glued, missing=("serving",)) if glued else self.not_checked("serving", "tokenizer")


def _closing(seen: Evidence) -> str | None:
    """The token behind the prompt or the answer in the server's own template."""
    text = seen.serving.template if seen.serving is not None else None
    found = set(CLOSING.findall(text[:20_000])) if text else set()
    return found.pop() if len(found) == 1 else None


def _filling(seen: Evidence) -> tuple[Exhibit, ...]:
    """Completions of a code model that write its fill-in-the-middle markers and go on behind them."""
    held = answers(seen)
    through = [
        output for output in held if (mark := FILLING.search(output.text.rstrip()[:-1])) and output.text[mark.end() :].strip()
    ]
    if len(through) < 2 or len(through) * 2 < len(held):
        return ()
    en = f"{len(through)} of {len(held)} completions write a fill-in-the-middle marker and go on"
    return (about(through[0], en, f"{len(held)} 个补全里有 {len(through)} 个写出 FIM 标记后还接着写", GLUED),)


def _glued(seen: Evidence) -> tuple[Exhibit, ...]:
    """Answers in which a bare role word opens another turn: the markers around it were dropped, and the turn had ended."""
    held = answers(seen)
    glued = [output for output in held if ROLE.search(output.text)]
    if len(glued) < 2 or len(glued) * 2 < len(held):
        return ()
    en = f"in {len(glued)} of {len(held)} answers a bare role word opens the next turn: the end token was written, but hidden"
    return (
        about(glued[0], en, f"{len(held)} 个回答里有 {len(glued)} 个中间露出角色名又开新一轮：结束符写了，只是被隐藏了", GLUED),
    )


def _listens(seen: Evidence, end: str) -> tuple[bool | None, Exhibit]:
    """Whether the server stops on the turn's end; None where its configuration does not tell."""
    serving, tokenizer = seen.serving, seen.tokenizer
    number = tokenizer.ids.get(end) if tokenizer is not None else None
    if serving is None:
        return None, say("", "")
    ids = {*serving.stop_ids, *(() if serving.eos_id is None else (serving.eos_id,))}
    source = next(iter(serving.sources), "")
    listed = ", ".join((*serving.stops, *(str(item) for item in sorted(ids)))) or "–"
    told = say(
        f"a turn ends with {end}" + (f" ({number})" if number is not None else "") + f"; the server stops on {listed[:80]}",
        f"一轮以 {end}" + (f"（{number}）" if number is not None else "") + f" 收尾，推理端停在 {listed[:80]}",
        7.0,
        section="serving",
        where=serving.places.get("eos_id", serving.places.get("stops", source)),
        source=source,
    )
    good = Exhibit(told.text, told.where, told.source, weight=-7.0, section="serving")
    if end in serving.stops or (number is not None and number in ids):
        return True, good
    if serving.engine in READS_TOKENIZER and tokenizer is not None:
        stops = tokenizer.generation_eos or ()
        if tokenizer.eos == end or (number is not None and number in stops):
            return True, say(f"{serving.engine} stops on the tokenizer's eos {end}", f"{serving.engine} 会停在 tokenizer 的 eos {end}", -4.0, section="tokenizer")  # fmt: skip
    if ids and serving.stops and number is not None:
        return False, told
    if serving.stops and (not ids or serving.engine == "gguf"):
        return False, Exhibit(told.text, told.where, told.source, weight=7.0 if ids else 3.0, section="serving")
    return None, told


def _running(seen: Evidence, end: str | None) -> tuple[Exhibit, ...]:
    """Answers that were cut at the limit, or that hold the end token in their middle."""
    held = answers(seen)
    through = [output for output in held if end is not None and _past(output.text, end)]
    if len(through) >= 2:
        en, zh = (
            f"{len(through)} of {len(held)} answers go on after {end}",
            f"{len(held)} 个回答里有 {len(through)} 个在 {end} 之后接着写",
        )
        return (about(through[0], en, zh, THROUGH),)
    limit = seen.outputs.max_new_tokens if seen.outputs is not None else None
    cut = [
        output
        for output in held
        if output.finish in CUT or (limit is not None and output.tokens is not None and output.tokens >= limit)
    ]
    if len(cut) >= 2 and len(cut) * 2 > len(held):
        return (about(cut[0], f"{len(cut)} of {len(held)} answers run to the limit", f"{len(held)} 个回答里有 {len(cut)} 个写到长度上限", 2.0),)  # fmt: skip
    return ()


def _past(text: str, end: str) -> bool:
    """Whether words follow the end token; a tail of end tokens alone is the padding of a batch."""
    _, found, after = text.partition(end)
    return bool(found) and bool(after.replace(end, "").strip())
