"""Template tokens stand inside the training texts."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, outputs, quote, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.symptoms._outputs import residue

CHECK = "control-token-in-text"
PROOF_SHARE = 0.05
"""Crawled chat sets hold one such row in 300 or so; from a twentieth on the texts were rendered before."""
FEW = 3
"""A judgement, not measured: rows that show the very token the model printed; one may be a row about templates."""


class ControlTokensInData(Case):
    id = "control-tokens-in-data"
    symptoms = {"template-residue": 0.13}
    explains = ("double-eos", "double-bos", "turn-end-differs-from-eos")
    needs = ("data",)
    probe = "show"
    search = (
        "special tokens inside the training data",
        "<|im_start|> in the content field",
        "dataset already has the chat template applied",
        "[INST] inside user message",
        "训练数据里混进了 <|im_end|>",
        "content 字段里带模板标记",
        "数据已经套过一遍模板",
        "样本正文有特殊 token",
    )

    en = Card(
        title="Message texts contain control tokens",
        sign="Answers contain <|im_start|>, [INST] or </s> in the middle. Decoded training rows show the template twice, one inside the other.",
        cause="The texts were already rendered once, or were copied from another model's transcripts, and the trainer renders them again. The tokenizer reads the markers as real control tokens, so the model learns to write them inside answers or to stop in the middle of one.",
        remedy="Remove them from the messages: re.sub(r'<\\|[a-z_]+\\|>|\\[/?INST\\]|</?s>', '', content). If the data are meant to be rendered already, train on them as plain text without a template (LLaMA-Factory: template: empty; axolotl: type: completion; TRL: a text column).",
        verify="A search for <|, [INST] and </s> in the message texts finds nothing, and decoded rows show each marker once per turn.",
        prevention="Reject rows with control tokens in preprocessing unless they are there on purpose.",
        question="Do message texts in the data file contain markers such as <|im_end|>, [INST] or </s>?",
        quiz="A user message quotes '<|im_end|>'. Why is that dangerous? It is tokenised as the real end of turn.",
    )
    zh = Card(
        title="训练文本里混进了控制 token",
        sign="回答中间冒出 <|im_start|>、[INST]、</s>；解码样本能看到模板套了两层。",
        cause="文本本来就渲染过一遍，或者是从别的模型的对话记录里扒来的，训练框架又渲染了一次。tokenizer 把这些标记当成真的控制 token，模型就学会了把它们写进回答，或者答到一半停下。",
        remedy="从消息里清掉：re.sub(r'<\\|[a-z_]+\\|>|\\[/?INST\\]|</?s>', '', content)。如果数据就是渲染好的，按纯文本训练，不要再套模板（LLaMA-Factory：template: empty；axolotl：type: completion；TRL：text 列）。",
        verify="消息正文里搜不到 <|、[INST]、</s>；解码样本时每个标记每轮只出现一次。",
        prevention="预处理时直接拒收带控制 token 的样本，除非是有意放进去的。",
        question="数据文件的消息正文里有没有 <|im_end|>、[INST]、</s> 这类标记？",
        quiz="用户消息里引用了“<|im_end|>”，危险在哪？它会被分词成真正的轮次结束符。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, control_token_in_text=range(1, 60), example="Hello<|im_end|>\n<|im_start|>user")),
            Evidence(
                data=make.rowset(500, control_token_in_text=(3, 8, 90, 212), example="ok [/INST] sure"),
                outputs=make.said("Fine [/INST] then what", "Yes [/INST] no", "So"),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, checked=(CHECK,)), outputs=make.said("Fine<|im_start|>user what", "Yes")),
            Evidence(data=make.rowset(300, checked=(CHECK,), placeholder=range(1, 30))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, same = counted(seen, CHECK), _same(seen)
        if found and (share(seen, CHECK) >= PROOF_SHARE or (same and found >= FEW)):
            return self.confirmed(*rows(seen, CHECK), *same)
        return conclude(self, (*(rows(seen, CHECK, weight=0.5) or clean(seen, CHECK)), *same), missing=("outputs",))


def _same(seen: Evidence) -> tuple[Exhibit, ...]:
    """An output that holds a mark which stands in the training texts too."""
    examples = " ".join(found.example for found in seen.data.defect(CHECK)) if seen.data is not None else ""
    for output in outputs(seen) if examples else ():
        token = residue(output)
        if token and token in examples:
            return (quote(output.text, output.where, output.source, 3.0),)
    return ()
