"""Prompts are longer than the model's or the server's window."""

import re
from dataclasses import replace

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import about, answers
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, number, quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHARACTERS = {False: 5.0, True: 1.9}
"""Characters a token, by whether a text is Chinese, at the generous end (usual tokenizers: 4.2 for English, 1.5 for Chinese), so that
a prompt counted as too long by this is too long."""
OPENED = 3.0
"""Bits of a server that opens a window beyond the trained one, which does no harm while prompts are short."""
FAR = 1.5
"""How far beyond the trained length a prompt must be to count: attention degrades gradually past it."""


class ContextTooLong(Case):
    id = "context-too-long"
    symptoms = {"worse-in-inference": 0.05}
    stage = "environment"
    needs = ("serving", "outputs", "log", "crash")
    probe = "parity"
    signatures = (
        r"truncating input prompt",
        r"possible training context overflow",
        r"exceeds the training context of the model",
        r"maximum context length is \d+ tokens",
        r"prompt \(length \d+\) is longer than the maximum model length",
        r"exceed_context_size_error|exceeds the available context size",
        r"input length of input_ids is \d+, but `?max_length`? is set to",
    )
    search = (
        "ollama truncating input prompt num_ctx",
        "n_ctx_train possible training context overflow",
        "This model's maximum context length is 4096 tokens",
        "long prompts give bad answers after fine-tuning",
        "推理上下文太长 效果变差",
        "ollama num_ctx 太小被截断",
        "超过最大上下文长度",
        "长文本推理胡说",
    )

    en = Card(
        title="The prompt exceeds the context window",
        sign="Short questions are answered well, long ones badly: instructions at the beginning are ignored, or the answer turns into garbage. The server log mentions truncating, or n_ctx above n_ctx_train.",
        cause="There are two ways. Either the server's window is smaller than the prompt, and the beginning is dropped without an error, the system text first (Ollama's default num_ctx is 4,096 on cards below 24 GB, 2,048 in old versions). Or the window is larger than the model's positions or than the rows it was tuned on, so that attention at those distances was never trained.",
        remedy="Window too small: Ollama PARAMETER num_ctx 16384, llama.cpp -c 16384, vLLM --max-model-len 16384, SGLang --context-length 16384, up to max_position_embeddings. Beyond that: shorten the prompt, use retrieval, or YaRN (vLLM: --hf-overrides '{\"rope_parameters\": {…}}', older: rope_scaling) with training rows of that length. Tuned on short rows: raise max_length (cutoff_len in LLaMA-Factory, sequence_len in axolotl) and add long rows.",
        verify="usage.prompt_tokens of a long request equals the length you count with the tokenizer, and a question about its first paragraph is answered.",
        prevention="Count prompt tokens in production and raise an alarm above the trained length.",
        question="How many tokens do the failing prompts have, which window was the server started with, and how long were the training rows?",
        quiz="Ollama forgets the system text, but only in long chats. Which setting is it? num_ctx: the beginning of the prompt falls out of the window.",
    )
    zh = Card(
        title="prompt 超过上下文窗口",
        sign="短问题答得好，长问题答得差：开头的指令被无视，或者写着写着变成乱码。推理日志里有 truncating，或 n_ctx 大于 n_ctx_train。",
        cause="两种情况。一是推理窗口比 prompt 小，开头被悄悄丢掉，最先丢的就是 system（Ollama 的 num_ctx 在 24 GB 以下的卡上默认 4096，老版本是 2048）。二是窗口超过了模型的位置编码或微调样本的长度，这么远的距离上注意力从没训练过。",
        remedy="窗口太小：Ollama 写 PARAMETER num_ctx 16384，llama.cpp 用 -c 16384，vLLM 用 --max-model-len 16384，SGLang 用 --context-length 16384，上限是 max_position_embeddings。还不够：缩短 prompt、用检索，或开 YaRN（vLLM 用 --hf-overrides '{\"rope_parameters\": {…}}'，旧版是 rope_scaling）并用同样长度的样本训练。微调样本太短：调大 max_length（LLaMA-Factory 的 cutoff_len、axolotl 的 sequence_len），加入长样本再训。",
        verify="长请求返回的 usage.prompt_tokens 等于用 tokenizer 数出来的长度；针对第一段内容提问能答上来。",
        prevention="线上统计 prompt token 数，超过训练长度就告警。",
        question="出问题的 prompt 有多少 token？推理端窗口开多大？训练样本有多长？",
        quiz="Ollama 只在长对话里忘记 system，是哪个参数？num_ctx：prompt 开头被挤出窗口了。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    'level=WARN source=runner.go:131 msg="truncating input prompt" limit=4096 prompt=10552 keep=4 new=4096'
                )
            ),
            Evidence(
                serving=own.served("ollama", "Modelfile", context=2048.0),
                outputs=own.answered("no", "no", "no", prompt="clause and clause " * 900),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                serving=own.served("ollama", "Modelfile", context=8192.0),
                settings=make.configured("llama-factory", max_length=8192),
                outputs=own.answered("no", "no", "no", prompt="clause and clause " * 900),
            ),
            Evidence(
                serving=own.served("vllm", context=4096.0),
                settings=make.configured("axolotl", max_length=4096),
                model=make.modelled(max_positions=32768),
                scores=own.lost(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = quoted(self, seen, weight=OPENED)
        proofs = [replace(exhibit, weight=PROOF) for exhibit in told if _proves(exhibit)]
        if told:
            return self.confirmed(*proofs) if proofs else self.suspected(*told, missing=("outputs",))
        window = seen.serving.context if seen.serving is not None else None
        length, positions = number(seen, "max_length"), _positions(seen)
        longest = _longest(seen)
        if longest is not None:
            return self._by_prompts(seen, longest, window, length, positions)
        if window is None or length is None or window < 1 or length < 1:
            return self.not_checked("outputs" if window is not None else "serving")
        text = (
            f"window {window:g} tokens, trained on rows of up to {length:g}",
            f"推理窗口 {window:g} token，训练样本最长 {length:g}",
        )
        place = seen.serving.places.get("context", "") if seen.serving is not None else ""
        if window == length and (positions is None or window <= positions):
            return self.ruled_out(say(*text, -5.0, section="serving", where=place))
        if positions is not None and window > positions:
            beyond = (
                f"window {window:g}, the model has {positions} positions",
                f"推理窗口 {window:g}，模型只有 {positions} 个位置",
            )
            return self.suspected(say(*beyond, 3.0, section="serving", where=place), missing=("outputs",))
        return self.not_checked("outputs", exhibits=(say(*text, 0.0, section="serving", where=place),))

    def _by_prompts(
        self, seen: Evidence, longest: tuple[float, Exhibit], window: float | None, length: float | None, positions: int | None
    ) -> Finding:
        tokens, exhibit = longest
        hard = [limit for limit in (window, float(positions) if positions else None) if limit is not None and limit > 0]
        if hard and tokens > min(hard):
            place = seen.serving.places.get("context", "") if seen.serving is not None else ""
            text = f"the window has only {min(hard):g} tokens", f"窗口只有 {min(hard):g} token"
            return self.confirmed(exhibit, say(*text, 6.0, section="serving", where=place))
        if length is not None and length > 0 and tokens > FAR * length:
            text = f"training rows had up to {length:g} tokens", f"训练样本最长 {length:g} token"
            return self.suspected(exhibit, say(*text, 2.0, section="settings"), missing=("scores",))
        if hard and length is not None:
            fits = "the prompts fit the window and the trained length", "prompt 没有超出窗口和训练长度"
            return self.ruled_out(exhibit, say(*fits, -6.0, section="outputs"))
        return self.not_checked("serving", "settings")


def _proves(exhibit: Exhibit) -> bool:
    """A line that speaks of a prompt that did not fit; a window that is merely larger than trained proves no long prompt."""
    text = exhibit.text if isinstance(exhibit.text, str) else exhibit.text.en
    return re.search(r"training context", text.lower()) is None


def _positions(seen: Evidence) -> int | None:
    """Positions of the model; None where a rope scaling stretches them."""
    if seen.model is None or (seen.settings is not None and "rope_scaling" in seen.settings):
        return None
    return seen.model.max_positions


def _longest(seen: Evidence) -> tuple[float, Exhibit] | None:
    """The middle one of the recorded prompts' lengths in tokens, counted low, with its exhibit."""
    held = [output for output in answers(seen) if output.prompt]
    if len(held) < 2:
        return None
    counts = sorted(((_tokens(output.prompt), n) for n, output in enumerate(held)))
    tokens, n = counts[len(counts) // 2]
    return tokens, about(held[n], f"a usual prompt has at least {tokens:.0f} tokens", f"常见的 prompt 至少有 {tokens:.0f} token")


def _tokens(text: str) -> float:
    chinese = len(re.findall(r"[\u3400-\u9fff]", text))
    return chinese / CHARACTERS[True] + (len(text) - chinese) / CHARACTERS[False]
