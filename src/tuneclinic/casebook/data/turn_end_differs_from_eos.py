"""The token that closes a turn is not the one at which generation stops."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import ends, outputs, quote
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Output, Outputs, Serving, Tokenizer

TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|eot|>", "<|endofturn|>", "[|endofturn|]", "<|END_OF_TURN_TOKEN|>",
)  # fmt: skip
"""Tokens that close a turn: ChatML, Llama 3, Gemma, Phi, Llama 4, EXAONE, Cohere."""

FOLLOWED = 8
"""Characters after a turn's end in an output that show that generation went on: more than a newline and a stray mark."""


class TurnEndDiffersFromEos(Case):
    id = "turn-end-differs-from-eos"
    symptoms = {"never-stops": 0.15, "template-residue": 0.18}
    needs = ("tokenizer", "serving", "outputs")
    probe = "show"
    change = {"eos_token": "<|im_end|>"}
    search = (
        "<|im_end|> is not the eos token",
        "Llama 3 keeps generating after <|eot_id|>",
        "Qwen base model fine-tuned with chat template does not stop",
        "generation_config eos_token_id 128001 128009",
        "eos 是 <|endoftext|>，模板结尾是 <|im_end|>",
        "输出 <|im_end|> 之后还继续生成",
        "generation_config 的 eos_token_id 不对",
        "Qwen base 微调后停不下来",
    )

    en = Card(
        title="The template's turn end is not eos",
        sign="The answer is right, then <|im_end|> or <|eot_id|> appears in the text and the model starts the user's next turn.",
        cause="The template closes a turn with <|im_end|> (or <|eot_id|>, <end_of_turn>), but the tokenizer's eos or generation_config.json names another id, usually the base model's <|endoftext|>. The model does write its end-of-turn token; generation does not stop on it.",
        remedy='Before training set tokenizer.eos_token = "<|im_end|>" (TRL: SFTConfig(eos_token="<|im_end|>"); axolotl: special_tokens: {eos_token: "<|im_end|>"} and eot_tokens; LLaMA-Factory: the matching template does it). For a trained model write both ids into generation_config.json: "eos_token_id": [151645, 151643] for Qwen2.5 and Qwen3, [128001, 128009] for Llama 3; or pass stop_token_ids to vLLM.',
        verify="Answers end before the limit, and no turn marker is left in the text.",
        prevention="Compare three ids before each training: the last token of an assistant turn in the template, tokenizer.eos_token_id, and generation_config.eos_token_id.",
        question="Which token ends an assistant turn in the template, and is it among eos_token_id in generation_config.json?",
        quiz="The output contains <|im_end|> in the middle. Was the end token learnt? Yes, but generation does not stop on it.",
    )
    zh = Card(
        title="模板的轮次结束符不是 eos",
        sign="答案是对的，接着文本里冒出 <|im_end|> 或 <|eot_id|>，然后模型自己写起了下一轮 user。",
        cause="模板用 <|im_end|>（或 <|eot_id|>、<end_of_turn>）收尾，tokenizer 的 eos 或 generation_config.json 里却是另一个 id，多半是 base 模型的 <|endoftext|>。模型其实写出了轮次结束符，只是生成不在这个 token 上停。",
        remedy='训练前设 tokenizer.eos_token = "<|im_end|>"（TRL：SFTConfig(eos_token="<|im_end|>")；axolotl：special_tokens: {eos_token: "<|im_end|>"} 加 eot_tokens；LLaMA-Factory：template 选对就会自动设）。已经训好的，把两个 id 都写进 generation_config.json：Qwen2.5、Qwen3 是 "eos_token_id": [151645, 151643]，Llama 3 是 [128001, 128009]；vLLM 可以传 stop_token_ids。',
        verify="回答能在上限之前结束，文本里不再留轮次标记。",
        prevention="训练前核对三个 id：模板里 assistant 轮最后一个 token、tokenizer.eos_token_id、generation_config.eos_token_id。",
        question="模板里 assistant 轮用哪个 token 收尾？它在不在 generation_config 的 eos_token_id 里？",
        quiz="输出中间出现了 <|im_end|>，结束符学会了吗？学会了，只是生成没有在它那里停。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(tokenizer=make.chatml(eos="<|endoftext|>", stops=(151643,)), outputs=make.endless()),
            Evidence(
                tokenizer=make.chatml(eos="<|endoftext|>", stops=None),
                outputs=Outputs((Output("hi", "Hello.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>", "o.jsonl row 1"),)),
            ),
            Evidence(tokenizer=make.llama3(eos="<|end_of_text|>", stops=(128001,)), metrics=run.ran(loss=run.falling(100))),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(tokenizer=make.chatml(), outputs=make.endless()),  # never stops, with template, eos and stop ids in line
            Evidence(tokenizer=make.llama3(eos="<|end_of_text|>", stops=(128001, 128009)), outputs=make.ending()),
            Evidence(
                tokenizer=make.chatml(eos="<|endoftext|>", stops=None),
                serving=Serving("vllm", stops=("<|im_end|>",)),
                outputs=make.ending(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        tokenizer = seen.tokenizer
        end = turn_end(tokenizer)
        if tokenizer is None or end is None:
            return self.not_checked("tokenizer")
        if not tokenizer.eos and not tokenizer.generation_eos:
            return self.not_checked("tokenizer")
        stopped = _stops_at(seen, tokenizer, end)
        if stopped is not None:
            return self.ruled_out(stopped)
        facts = _compared(tokenizer, end)
        stopping, residue = ends(seen), _continued(seen, end)
        unlisted = tokenizer.generation_eos is not None and tokenizer.ids.get(end) not in (None, *tokenizer.generation_eos)
        trained = any(seen.has(name) for name in ("data", "metrics", "script", "outputs"))
        unknown = bool(tokenizer.ids) and end not in tokenizer.ids  # not a token of this vocabulary: another case
        if (residue and not unknown) or (unlisted and trained and not any(one.weight < 0 for one in stopping)):
            return self.confirmed(facts, *residue, *stopping, change={"eos_token": end})
        return conclude(self, (facts, *stopping), missing=("outputs", "serving"), change={"eos_token": end})


def turn_end(tokenizer: Tokenizer | None) -> str | None:
    """The token with which the template closes a turn; None where it closes with the tokenizer's eos or is not known."""
    template = tokenizer.template if tokenizer is not None else None
    if not template:
        return None
    found = [(template.rfind(token), token) for token in TURN_ENDS if token in template]
    return max(found)[1] if found else None


def _compared(tokenizer: Tokenizer, end: str) -> Exhibit:
    source = next(iter(tokenizer.sources), "")
    stops = f", generation stops on {list(tokenizer.generation_eos)}" if tokenizer.generation_eos else ""
    stops_zh = f"，生成停在 {list(tokenizer.generation_eos)}" if tokenizer.generation_eos else ""
    number = tokenizer.ids.get(end)
    told = end if number is None else f"{end} (id {number})"
    return say(
        f"the template closes a turn with {told}, the eos is {tokenizer.eos}{stops}",
        f"模板用 {told} 收尾，eos 却是 {tokenizer.eos}{stops_zh}",
        4.0 if tokenizer.generation_eos else 2.0,
        section="tokenizer",
        where=tokenizer.places.get("eos", source),
        source=source,
    )


def _stops_at(seen: Evidence, tokenizer: Tokenizer, end: str) -> Exhibit | None:
    """An exhibit that generation does stop at the turn's end, where anything says so."""
    number = tokenizer.ids.get(end)
    if tokenizer.eos == end and (number is None or tokenizer.generation_eos is None or number in tokenizer.generation_eos):
        return say(f"the template's end of turn {end} is the eos", f"模板的收尾 {end} 就是 eos", -8.0, section="tokenizer")
    if number is not None and number in (tokenizer.generation_eos or ()):
        return say(f"generation stops on {end} ({number}) too", f"生成也会停在 {end}（{number}）", -8.0, section="tokenizer")
    for name in ("eos_token", "eot_tokens", "stop_words"):
        if end.lower() in text_of(seen, name):
            return setting(seen, name, -6.0)[0]
    serving = seen.serving
    if serving is not None and (end in serving.stops or (number is not None and number in (*serving.stop_ids, serving.eos_id))):
        return say(f"the server stops on {end}", f"推理端会停在 {end}", -6.0, section="serving")
    return None


def _continued(seen: Evidence, end: str) -> tuple[Exhibit, ...]:
    """Outputs in which text goes on after the turn's end."""
    for output in outputs(seen):
        before, found, after = output.text.partition(end)
        if found and before.strip() and len(after.strip()) >= FOLLOWED and end not in (output.reference or ""):
            told = say(
                f"an answer writes {end} and goes on",
                f"回答里写出了 {end}，之后还在继续",
                6.0,
                section="outputs",
                where=output.where,
                source=output.source,
            )
            return (told, quote(output.text, output.where, output.source))
    return ()
