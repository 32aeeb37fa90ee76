"""Labels are compared with the token at the same position."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data._facts import outputs, own_labels, quote
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FACT = "labels-not-shifted"
COPIES = 0.6
"""Share of outputs that stutter one token: a model that learnt to copy repeats its last input for ever."""


class LabelsNotShifted(Case):
    id = "labels-not-shifted"
    symptoms = {"loss-at-uniform": 0.16, "cannot-overfit": 0.2, "loss-near-zero": 0.08}
    needs = ("script", "settings")
    probe = "loss-check"
    search = (
        "labels not shifted by one cross entropy",
        "custom loss without shifting logits and labels",
        "loss drops to zero but the model only repeats the input",
        "model copies its input token",
        "labels 没有右移一位",
        "自己写的 loss 忘了 shift",
        "loss 很快到 0 但只会复制输入",
        "logits 和 labels 没错开",
    )

    en = Card(
        title="Labels are not shifted",
        sign="The loss falls to about 0 within a few dozen steps while generation repeats one token. If the model cannot copy its input, the loss stays high instead and ten samples are never memorised.",
        cause="The output at position t predicts token t+1. Comparing logits[t] with token t asks the model to copy its input, which is learnt at once and is of no use. Most people who write a loss by hand make this mistake once.",
        remedy="Shift before the loss: loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1), ignore_index=-100). Or pass labels to the Hugging Face model (model(input_ids, labels=labels)), which shifts them itself.",
        verify="On a three-token sample your loss equals model(input_ids, labels=input_ids).loss to four digits.",
        prevention="Test every hand-written loss numerically against the library's, with padding and masks.",
        question="Who computes the loss, and where are labels shifted by one: in the script, in the model, or nowhere?",
        quiz="Loss 0.2 after 50 steps on new data, output 'the the the'. What is the cause? The model copies its input: labels are not shifted.",
    )
    zh = Card(
        title="labels 没有错开一位",
        sign="几十步内 loss 就掉到接近 0，生成却只会重复同一个 token；模型没法抄输入时则相反，loss 一直很高，10 条样本也背不下来。",
        cause="位置 t 的输出预测的是第 t+1 个 token。拿 logits[t] 去和第 t 个 token 比，等于让模型抄输入，一学就会，却没有用。自己手写 loss 的人多半都踩过一次。",
        remedy="算 loss 前先错位：loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1), ignore_index=-100)。或者把 labels 交给 Hugging Face 模型（model(input_ids, labels=labels)），它内部会 shift。",
        verify="拿三个 token 的样本算一遍，和 model(input_ids, labels=input_ids).loss 对到小数点后四位。",
        prevention="凡是手写的 loss，都和库里的实现做数值对拍，padding 和掩码一起测。",
        question="loss 是谁算的？labels 错开一位这一步在脚本里、在模型里，还是哪里都没有？",
        quiz="新数据训 50 步 loss 就到 0.2，输出“的的的”，为什么？模型在抄输入，labels 没有 shift。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(FACT, quote="loss = F.cross_entropy(logits.view(-1, V), batch['input_ids'].view(-1))")),
            Evidence(
                script=run.scripted(FACT, quote="loss = loss_fn(outputs.logits.flatten(0, 1), labels.flatten())"),
                metrics=run.ran(loss=run.falling(100, 6.0, 0.15, speed=12)),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(checked=(FACT,)), metrics=run.ran(loss=run.level(100, 6.2))),
            Evidence(script=run.scripted("label-smoothing", checked=(FACT, "label-smoothing"))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof, against = facts(seen, FACT), clean(seen, FACT)
        copied = _copying(seen)
        if proof:
            return self.confirmed(*proof, *copied)
        against = against or (() if copied else own_labels(seen))
        if against:
            return self.ruled_out(*against)
        return conclude(self, copied, missing=("script",)) if copied else self.not_checked("script")


def _copying(seen: Evidence) -> tuple[Exhibit, ...]:
    """A loss of about 0 beside outputs that repeat one word."""
    held = outputs(seen)
    stutter = [output for output in held if _one_word(output.text)]
    if shape_of(seen).near_zero_from is None or len(held) < 3 or len(stutter) < COPIES * len(held):
        return ()
    told = say(
        f"the loss is about 0 and {len(stutter)} of {len(held)} answers repeat a single token",
        f"loss 接近 0，而 {len(held)} 条回答里有 {len(stutter)} 条只在重复一个 token",
        5.0,
        section="outputs",
    )
    return (told, quote(stutter[0].text, stutter[0].where, stutter[0].source))


def _one_word(text: str) -> bool:
    words = text.split()[:50] if " " in text.strip() else list(text.strip()[:50])
    return len(words) >= 8 and len(set(words)) == 1
