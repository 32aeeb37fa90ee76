"""A token id has no row in the embedding."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean as script_clean
from tuneclinic.casebook.learning._facts import conclude, facts, lines, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_error
from tuneclinic.sections import Model

CHECK, FACT = "id-out-of-range", "tokens-added-without-resize"
GATHERS = (
    r"srcindex < srcselectdimsize",
    r"indexselect(?:large|small)index",
    r"vectorized_gather_kernel.{0,200}assertion",
    r"index out of range in self",
)
DEVICE = r"device-side assert triggered"
TRAINS = 10
"""Logged rows after which every common token was looked up."""
POSITIONS = r"token indices sequence length is longer than|position_embeddings|wpe\b|position_ids"
TARGET = r"target -?\d+ is out of bounds|t >= 0 && t < n_classes"


class TokenIdOutOfRange(Case):
    id = "token-id-out-of-range"
    symptoms = {"crashes": 0.14}
    needs = ("crash", "data", "script", "log", "tokenizer")
    probe = "show"
    change = {"resize_vocabulary": True}
    signatures = GATHERS
    search = (
        "srcIndex < srcSelectDimSize failed",
        "IndexError: index out of range in self",
        "CUDA error: device-side assert triggered embedding",
        "added pad token without resize_token_embeddings",
        "token id 超出词表",
        "device-side assert triggered 词表",
        "index out of range in self",
        "加了 token 没有 resize embedding",
    )

    en = Card(
        title="A token id is beyond the embedding table",
        sign="On a GPU: 'Assertion `srcIndex < srcSelectDimSize` failed' and 'device-side assert triggered'. On the CPU: 'IndexError: index out of range in self' in the embedding.",
        cause="Tokens were added without resizing the embedding (often [PAD] with id 32000 in a table of 32000 rows), the tokenizer belongs to another model, or an earlier stage resized the table but did not save it. An id of -100 or -1 in input_ids has the same effect.",
        remedy="Call model.resize_token_embeddings(len(tokenizer)) right after loading. With LoRA add modules_to_save=['embed_tokens', 'lm_head'] so that the new rows are trained and saved; LLaMA-Factory: resize_vocab: true; axolotl resizes for tokens listed under tokens. Or add no token and use an existing one for padding.",
        verify="Over the whole data set max(input_ids) < model.get_input_embeddings().num_embeddings and min(input_ids) >= 0.",
        prevention="Make that assertion on the CPU before the first step. CUDA_LAUNCH_BLOCKING=1 only helps to find the place afterwards.",
        question="What are len(tokenizer), the number of rows of the embedding, and the largest id in the data?",
        quiz="After a device-side assert every later call fails too. Which message counts? The first one; then run that batch on the CPU.",
    )
    zh = Card(
        title="token id 超出词表",
        sign="GPU 上报 Assertion `srcIndex < srcSelectDimSize` failed 和 device-side assert triggered；CPU 上是 embedding 里的 IndexError: index out of range in self。",
        cause="加了新 token 却没有 resize embedding（最常见的是 32000 行的表加了 id 为 32000 的 [PAD]）；用了别的模型的 tokenizer；或者上一阶段 resize 过但没存下来。input_ids 里混进 -100、-1 也会这样。",
        remedy="加载后马上 model.resize_token_embeddings(len(tokenizer))。LoRA 还要加 modules_to_save=['embed_tokens', 'lm_head']，新行才会被训练和保存；LLaMA-Factory 用 resize_vocab: true；axolotl 写在 tokens 里的会自动 resize。或者别加 token，拿一个现成的当 padding。",
        verify="整个数据集满足 max(input_ids) < model.get_input_embeddings().num_embeddings 且 min(input_ids) >= 0。",
        prevention="第一步之前先在 CPU 上做这个断言；CUDA_LAUNCH_BLOCKING=1 只能事后定位。",
        question="len(tokenizer)、embedding 行数、数据里最大的 id 各是多少？",
        quiz="device-side assert 之后每个调用都报错，该看哪条？看第一条，再把那个 batch 拿到 CPU 上跑。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(64, id_out_of_range=(3, 9), layout="tokenised", example="32000 ≥ 32000")),
            Evidence(
                crash=run.crashed("RuntimeError", "CUDA error: device-side assert triggered", phase="forward"),
                log=run.logged(
                    "../aten/src/ATen/native/cuda/Indexing.cu:1093: indexSelectLargeIndex: block: [129,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
                ),
            ),
            Evidence(
                crash=run.crashed(
                    "IndexError", "index out of range in self", "sparse.py:162 in forward", "functional.py:2210 in embedding"
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(crash=run.crashed("IndexError", "Target -1 is out of bounds.")),
            Evidence(
                data=make.rowset(64, checked=(CHECK,), layout="tokenised"),
                crash=run.crashed("RuntimeError", "CUDA error: device-side assert triggered"),
            ),
            Evidence(script=run.scripted(checked=(FACT,)), tokenizer=make.chatml()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = lines(seen, *GATHERS, weight=8.0)[:2]
        added, found = facts(seen, FACT, weight=4.0), rows(seen, CHECK)
        larger = _larger(seen)
        position = lines(seen, POSITIONS, weight=-3.0)[:1] if named else ()
        if found or (named and (not position or added)) or (added and _any_assert(seen)):
            return self.confirmed(*found, *named, *added, *larger)
        if named:
            return conclude(self, (*named, *position), missing=("tokenizer", "data"))
        if counted(seen, CHECK) == 0 and clean(seen, CHECK):
            return self.ruled_out(*clean(seen, CHECK))
        target = lines(seen, TARGET, weight=-6.0)
        if target:
            return self.ruled_out(*target)
        held = (*added, *larger, *_any_assert(seen), *script_clean(seen, FACT), *_trains(seen))
        cause = seen.crash.cause if seen.crash is not None else None
        if cause is not None and not held:
            return self.ruled_out(from_error(cause, -4.0))
        return conclude(self, held, missing=("data", "tokenizer", "model"))


def _any_assert(seen: Evidence) -> tuple[Exhibit, ...]:
    return lines(seen, DEVICE, weight=2.0)[:1]


def _trains(seen: Evidence) -> tuple[Exhibit, ...]:
    """A run that logs losses has looked up its ids: many embeddings have spare rows that new tokens fall into."""
    points = shape_of(seen).points
    if points < TRAINS or seen.crash is not None:
        return ()
    return (say(f"the run goes on for {points} logged steps", f"训练正常跑了 {points} 个记录点", -6.0),)


def _larger(seen: Evidence) -> tuple[Exhibit, ...]:
    """A special token whose id the model's embedding does not reach."""
    model: Model | None = seen.model
    if model is None or not model.vocabulary or seen.tokenizer is None or not seen.tokenizer.ids:
        return ()
    token, number = max(seen.tokenizer.ids.items(), key=lambda pair: pair[1])
    if number < model.vocabulary:
        return ()
    text = f"{token} has id {number}, but the embedding has {model.vocabulary} rows"
    return (say(text, f"{token} 的 id 是 {number}，embedding 只有 {model.vocabulary} 行", 4.0, section="tokenizer"),)
