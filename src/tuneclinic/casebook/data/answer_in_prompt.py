"""The prompt holds the answer."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import by_share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "answer-in-prompt"
PROOF_SHARE = 0.05
"""Editing tasks bring up to 0.4 % of rows back unchanged in the instruction sets measured; a leaked answer is in nearly every row."""


class AnswerInPrompt(Case):
    id = "answer-in-prompt"
    symptoms = {"loss-near-zero": 0.05}
    needs = ("data",)
    probe = "show"
    search = (
        "answer leaks into the prompt",
        "prompt column contains the full text",
        "loss near zero because the answer is in the input",
        "completion repeated in the prompt",
        "提问里已经带了答案",
        "答案泄漏到 prompt",
        "prompt 列里是完整文本",
        "loss 接近 0 推理却不会",
    )

    en = Card(
        title="The prompt already contains the answer",
        sign="Training and evaluation loss are near 0 after a few steps. Asked with the question alone, the model knows nothing.",
        cause="The prompt was built from the whole text, or the formatting function writes the answer into the prompt and then again as the answer. The model only has to copy what it has just read.",
        remedy="Put only the question into the prompt: prompt = row['question'], completion = row['answer']. TRL: separate prompt and completion columns. LLaMA-Factory: in dataset_info.json, prompt, query and response must point to different fields. axolotl: check field_instruction, field_input and field_output in the same way.",
        verify="In three decoded rows the answer occurs once, and the first loss is about 1 to 3 instead of near 0.",
        prevention="Assert in preprocessing that no prompt ends with its own answer.",
        question="Read the prompt of one row to its end: does it contain the answer?",
        quiz="The evaluation loss is near 0 as well. Does that clear the data? No: the evaluation rows are built by the same function.",
    )
    zh = Card(
        title="prompt 里已经有答案",
        sign="没几步训练和验证 loss 就接近 0；真正只给问题去问，模型什么都不会。",
        cause="prompt 是拿整段文本拼的，或者格式化函数先把答案写进了 prompt，后面又当回答写了一遍。模型只要照抄刚读到的内容就行。",
        remedy="prompt 只放问题：prompt = row['question']，completion = row['answer']。TRL 用 prompt、completion 两列；LLaMA-Factory 检查 dataset_info.json，prompt、query、response 不能指向同一个字段；axolotl 同样检查 field_instruction、field_input、field_output。",
        verify="解码三条样本，答案只出现一次；起始 loss 在 1～3 左右，不再接近 0。",
        prevention="预处理时断言：prompt 不能以自己的答案结尾。",
        question="把一条样本的 prompt 读到最后，里面有没有答案？",
        quiz="验证 loss 也接近 0，能说明数据没问题吗？不能，验证集是同一个函数拼出来的。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(500, answer_in_prompt=range(1, 480)),
                metrics=run.ran(loss=run.falling(100, 0.3, 0.01, noise=0.002)),
            ),
            Evidence(
                data=make.rowset(
                    120, answer_in_prompt=range(1, 121), layout="prompt-completion", example="Q: 2+2? A: four hundred"
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(500, checked=(CHECK,)), metrics=run.ran(loss=run.falling(100, 0.3, 0.01, noise=0.002))),
            Evidence(data=make.rowset(500, checked=(CHECK,), duplicate=range(2, 400))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        return by_share(self, seen, CHECK, proof=PROOF_SHARE, least=2)
