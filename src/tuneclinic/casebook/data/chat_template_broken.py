"""The chat template does not write the conversation as it is."""

from dataclasses import replace

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, line_count, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, lines, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern

RENDERINGS = ("system-repeated", "answer-split", "turn-lost")
ORDER = "roles-disordered"
BROKEN_SHARE = 0.1
"""A fault of the template shows in every row of one shape; below a tenth of the rows it is the rows that are odd."""
MISMATCH = r"tokenization mismatch: \d+ vs\.? ?\d+"
ROLES = pattern(r"(?:[a-z]+-)+(?:[a-z]+|[a-z]*…)")
"""How the reader of data sets quotes turns out of order in the file itself: `user-user-assistant`."""
MANY = 10
"""LLaVA and FastChat drop single samples whose turns tokenise differently by design; from ten on the version is wrong."""


class ChatTemplateBroken(Case):
    id = "chat-template-broken"
    symptoms = {"loss-not-falling": 0.14, "loss-at-uniform": 0.06}
    explains = ("all-labels-masked", "truncation-eats-answer", "long-samples")
    needs = ("data", "log")
    probe = "show"
    signatures = (MISMATCH,)
    search = (
        "chat template repeats the system prompt",
        "WARNING: tokenization mismatch: 385 vs. 399. (ignored)",
        "apply_chat_template drops a turn",
        "answer is cut in two by the template",
        "chat template 写错了",
        "system 提示词重复出现",
        "渲染出来的样本丢了一轮对话",
        "tokenization mismatch 警告",
    )

    en = Card(
        title="The chat template breaks the conversation",
        sign="The loss hardly falls whatever the learning rate, and there is no error. Rendered rows repeat the system part, cut an answer in two, lose a turn or swap roles. LLaVA and FastChat print 'tokenization mismatch: 385 vs. 399' for every sample.",
        cause="The model is trained on the text that the template writes, not on the messages. A loop that writes the system text in every turn, a split on a string that also occurs inside answers, or the conversation version of another model gives text that is valid but wrong, so nothing complains.",
        remedy="Print tokenizer.apply_chat_template(messages, tokenize=False) for three rows and fix the Jinja where the text differs from the messages: the system part once, before the loop; {{ message.content }} without a split. Or use the model's own template: template: qwen or llama3 in LLaMA-Factory, chat_template: tokenizer_default in axolotl, the matching --version in LLaVA.",
        verify="Each message appears in the rendered text exactly once, complete and in order; ten rows can be memorised to a loss under 0.1.",
        prevention="Keep a test that renders a three-turn conversation with a system part and compares it with the expected text character by character.",
        question="What does apply_chat_template(messages, tokenize=False) print for one row: is each message there once, complete and in order?",
        quiz="Why does a broken template raise no error? Any string is valid training text. Only its content is wrong.",
    )
    zh = Card(
        title="对话模板把样本渲染坏了",
        sign="学习率怎么调 loss 都降不下去，也没有任何报错。渲染出来的样本里 system 重复出现、回答被拆成两截、丢了一轮或角色颠倒。LLaVA、FastChat 会对每条样本报 tokenization mismatch: 385 vs. 399。",
        cause="模型学的是模板渲染出来的文本，不是 messages 本身。循环里每轮都写一遍 system、按回答里也会出现的字符串做 split、用了别的模型的 conversation 版本，得到的文本都合法，只是内容不对，所以谁也不报错。",
        remedy="打印三条 tokenizer.apply_chat_template(messages, tokenize=False)，哪里和 messages 不一样就改哪里的 Jinja：system 放在循环外只写一次，{{ message.content }} 不要再切。也可以直接换回模型自带的模板：LLaMA-Factory 写 template: qwen 或 llama3，axolotl 写 chat_template: tokenizer_default，LLaVA 改对 --version。",
        verify="每条消息在渲染文本里正好出现一次，完整且顺序正确；10 条样本能背到 loss < 0.1。",
        prevention="写一个测试：带 system 的三轮对话，渲染结果和预期文本逐字符比对。",
        question="随便挑一条样本跑 apply_chat_template(messages, tokenize=False)：每条消息是不是都在、只出现一次、顺序对？",
        quiz="模板写坏了为什么不报错？任何字符串都是合法的训练文本，只是内容不对。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(64, system_repeated=range(1, 65), answer_split=range(1, 65), statistics={"rendered_rows": 64.0})
            ),
            Evidence(
                data=make.rowset(500, turn_lost=range(1, 40), statistics={"rendered_rows": 64.0}, checked=("answer-split",))
            ),
            Evidence(
                log=run.logged(*(f"WARNING: tokenization mismatch: {300 + n} vs. {314 + n}. (ignored)" for n in range(12))),
                metrics=run.ran(loss=[0.0] * 40, grad_norm=[0.0] * 40),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(  # rendered clean, and flat for another reason
                data=make.rowset(64, checked=(*RENDERINGS, ORDER), statistics={"rendered_rows": 64.0}),
                metrics=run.ran(loss=run.level(100, 2.3)),
            ),
            Evidence(data=make.rowset(200, checked=(*RENDERINGS, ORDER), end_token_missing=range(1, 60))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        broken = share(seen, *RENDERINGS) if counted(seen, *RENDERINGS) else 0.0
        written = _rendered_order(seen)
        mixed = share(written, ORDER) if counted(written, ORDER) else 0.0
        if max(broken, mixed) >= BROKEN_SHARE:
            found = (*rows(seen, *RENDERINGS), *rows(written, ORDER, weight=8.0))
            return self.confirmed(*found, *_mismatches(seen)[:1])
        mismatches = _mismatches(seen)
        few = rows(seen, *RENDERINGS, ORDER, weight=1.0)
        form = shape_of(seen)
        nothing_left = form.zero_from is not None or form.masked_from is not None
        if line_count(seen, MISMATCH) >= MANY and nothing_left:
            return self.confirmed(*mismatches, say("and the loss reads 0.0", "同时 loss 为 0.0", 3.0))
        if mismatches or few:
            return conclude(self, (*mismatches, *few), missing=("tokenizer", "data"))
        held = clean(seen, *RENDERINGS)
        return conclude(self, held, missing=("data", "tokenizer"))


def _rendered_order(seen: Evidence) -> Evidence:
    """The evidence with only those rows out of order that rendering found; two user turns in a row are the file's own."""
    if seen.data is None:
        return seen
    kept = tuple(found for found in seen.data.defects if found.name != ORDER or not ROLES.fullmatch(found.example))
    return Evidence(data=replace(seen.data, defects=kept))


def _mismatches(seen: Evidence) -> tuple[Exhibit, ...]:
    """The warnings, weighed by how often they came."""
    weight = 5.0 if line_count(seen, MISMATCH) >= MANY else 1.0
    return lines(seen, MISMATCH, weight=weight)[:2]
