"""The adapter is not at work: it holds zeros, or nobody loads it."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import adapters, same_as_base
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, say
from tuneclinic.casebook.learning._resume import jump
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Adapter


class AdapterNotLoaded(Case):
    id = "adapter-not-loaded"
    symptoms = {"worse-in-inference": 0.075, "resume-jumps": 0.2}
    stage = "environment"
    needs = ("weights", "outputs", "serving", "script")
    probe = "weights"
    search = (
        "lora adapter has no effect",
        "output identical to base model after loading lora",
        "lora_B all zeros",
        "vllm lora-modules not applied",
        "loss goes back to the start after resuming lora",
        "LoRA 加载了没效果",
        "挂上 adapter 输出和 base 一模一样",
        "lora_B 全是 0",
        "resume 之后 LoRA 权重没加载",
    )

    en = Card(
        title="The adapter has no effect",
        sign="Answers with and without the adapter are identical, letter for letter; or after a resume the loss starts again from its first value.",
        cause="lora_B starts at zero, so a new or all-zero adapter changes nothing and raises no error. It happens when get_peft_model is called instead of PeftModel.from_pretrained, when key names do not match and are skipped, when the request names the base model instead of the adapter, or when the saved file never held the trained values.",
        remedy='Load it by path: PeftModel.from_pretrained(base, "out/adapter"), and do not call get_peft_model after that; to continue training add is_trainable=True. vLLM: --enable-lora --lora-modules mine=out/adapter, and "model": "mine" in each request. SGLang: --enable-lora --lora-paths mine=out/adapter. Ollama: ADAPTER ./adapter in the Modelfile. llama.cpp: --lora adapter.gguf. LLaMA-Factory: adapter_name_or_path: out/adapter. If lora_B in the file is zero, save again with trainer.save_model().',
        verify="Logits of one prompt with the adapter and under model.disable_adapter() differ, and the sum of |lora_B| is above 0.",
        prevention="Let the release check ask one training question with and without the adapter and fail if the answers are equal.",
        question="Is the answer with the adapter the same as the base model's, letter for letter?",
        quiz="An adapter loads without a warning and changes nothing. Which number do you look at? The largest |lora_B|: zero means an untrained adapter.",
    )
    zh = Card(
        title="adapter 没有生效",
        sign="挂不挂 adapter，回答一字不差；或者 resume 之后 loss 又从最初的值开始降。",
        cause="lora_B 初始为零，新建的或全零的 adapter 不改变任何输出，也不报错。常见原因：该用 PeftModel.from_pretrained 却又调了一次 get_peft_model；键名对不上被跳过；请求里写的模型名是 base；保存的文件里本来就没有训练过的值。",
        remedy='按路径加载：PeftModel.from_pretrained(base, "out/adapter")，之后别再调 get_peft_model；接着训练要传 is_trainable=True。vLLM：--enable-lora --lora-modules mine=out/adapter，并且每个请求写 "model": "mine"。SGLang：--enable-lora --lora-paths mine=out/adapter。Ollama：Modelfile 里写 ADAPTER ./adapter。llama.cpp：--lora adapter.gguf。LLaMA-Factory：adapter_name_or_path: out/adapter。文件里 lora_B 是零的，用 trainer.save_model() 重新保存。',
        verify="同一个 prompt，挂 adapter 和 model.disable_adapter() 的 logits 不同；|lora_B| 之和大于 0。",
        prevention="发布检查里拿一条训练问题，挂与不挂 adapter 各问一遍，回答相同就不放行。",
        question="挂上 adapter 的回答，是不是和 base 一字不差？",
        quiz="adapter 加载没有任何警告，却一点效果没有，先看哪个数？|lora_B| 的最大值，等于 0 就是没训练过的 adapter。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(weights=own.adapter_file("self_attn.q_proj", "self_attn.v_proj", zero=4, step=500)),
            Evidence(weights=own.adapter_file("self_attn.q_proj"), outputs=own.paired(same=True)),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(weights=own.adapter_file("self_attn.q_proj"), outputs=own.paired(same=False)),
            Evidence(
                weights=own.adapter_file("self_attn.q_proj"),
                model=make.modelled(adapter=Adapter(rank=8, base="Qwen/Qwen2.5-7B")),
                serving=own.served(model="Qwen/Qwen2.5-7B", adapter="out/adapter"),
                scores=own.lost(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        paired = same_as_base(seen)
        zero, alive = _values(seen)
        if zero:
            return self.confirmed(zero, *paired)
        if paired and paired[0].weight > 0:
            return self.confirmed(*paired, *_base_served(seen)) if _has_adapter(seen) else self.suspected(*paired)
        if paired:
            return self.ruled_out(*paired)
        replaced, moved = facts(seen, "state-dict-overridden", weight=4.0), jump(seen, 2.0, -2.0)
        if replaced and moved and moved[0].weight > 0:
            return self.suspected(*replaced, *moved, missing=("weights",))
        base = _base_served(seen)
        if base:
            return self.suspected(*base, missing=("outputs",))
        if alive and seen.serving is not None and seen.serving.adapter is not None:
            named = f"the server loads the adapter {seen.serving.adapter}", f"推理端挂了 {seen.serving.adapter}"
            return self.ruled_out(alive, say(*named, -2.0, section="serving", where=seen.serving.places.get("adapter", "")))
        return self.not_checked("outputs" if alive else "weights", exhibits=(alive,) if alive else ())


def _has_adapter(seen: Evidence) -> bool:
    held = seen.model is not None and seen.model.adapter is not None
    return held or bool(adapters(seen)) or bool(seen.serving is not None and seen.serving.adapter)


def _values(seen: Evidence) -> tuple[Exhibit | None, Exhibit | None]:
    """(proof that the latest adapter is all zero, proof that it is not): from the values of its file; None where not read."""
    files = [file for file in adapters(seen) if file.values_read and file.lora_b and file.step != 0]
    if not files:
        return None, None
    file = files[0]
    if file.zero_lora_b == file.lora_b:
        text = f"all {file.lora_b} lora_B in {file.source} are zero", f"{file.source} 里 {file.lora_b} 个 lora_B 全是零"
        return say(*text, 9.0, section="weights", where=file.source, source=file.source), None
    text = (
        f"{file.lora_b - file.zero_lora_b} of {file.lora_b} lora_B in {file.source} are not zero",
        f"{file.source} 里 {file.lora_b} 个 lora_B 有 {file.lora_b - file.zero_lora_b} 个不为零",
    )
    return None, say(*text, -2.0, section="weights", where=file.source, source=file.source)


def _base_served(seen: Evidence) -> tuple[Exhibit, ...]:
    """The server is given exactly the adapter's base, and no adapter."""
    adapter = seen.model.adapter if seen.model is not None else None
    serving = seen.serving
    if adapter is None or not adapter.base or serving is None or serving.adapter or serving.model is None:
        return ()
    if serving.model.rstrip("/") != adapter.base.rstrip("/"):
        return ()
    return (
        say(
            f"the server loads the base model {serving.model} without the adapter",
            f"推理端加载的正是 adapter 的 base {serving.model}，没有挂 adapter",
            4.0,
            section="serving",
            where=serving.places.get("model", ""),
        ),
    )
