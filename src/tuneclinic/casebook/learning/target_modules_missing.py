"""The adapter's target modules are not in the model, all or some of them."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Adapter, WeightFile, Weights


class TargetModulesMissing(Case):
    id = "target-modules-missing"
    symptoms = {"crashes": 0.07}
    stage = "environment"
    explains = ("nothing-trainable",)
    needs = ("crash", "log", "weights", "model")
    probe = "weights"
    change = {"target_modules": "all-linear"}
    signatures = (
        r"target modules .{0,400}not found in the base model",
        r"no modules were targeted for adaptation",
        r"target_modules .{0,200}not found",
        r"please specify `?target_modules`? in `?peft_config",
    )
    search = (
        "ValueError: Target modules not found in the base model",
        "Please specify target_modules in peft_config",
        "No modules were targeted for adaptation",
        "target_modules 找不到",
        "LoRA 目标模块不匹配",
    )

    en = Card(
        title="Target modules are not in the model",
        sign="get_peft_model stops with 'Target modules … not found in the base model'. A partial mismatch is worse: if only some names do not match, there is no error, and the adapter file lacks those layers.",
        cause="The names belong to another architecture (query_key_value: ChatGLM, Falcon, BLOOM; q_proj: Llama, Qwen, Mistral; c_attn: GPT-2), or a regular expression was put into a list, where each entry is matched as a suffix. PEFT raises an error only when no name matches at all.",
        remedy='Set target_modules="all-linear" (LLaMA-Factory: lora_target: all; axolotl: lora_target_linear: true), or print the names of the linear layers with model.named_modules() and use those. A regular expression must be one string, not a list entry.',
        verify="print_trainable_parameters() shows rank × (in + out) summed over the wanted layers, and the saved file contains every one of them.",
        prevention="After wrapping, assert that each wanted name matched at least once.",
        question="Which names are in target_modules, and what are the model's linear layers called?",
        quiz="A config asks for q_proj, v_proj and gate; the model has no gate. What happens? No error: q_proj and v_proj are adapted, gate is silently skipped.",
    )
    zh = Card(
        title="LoRA 目标模块在模型里没有",
        sign="get_peft_model 报 Target modules … not found in the base model。更隐蔽的是只有一部分名字对不上：不报错，但 adapter 文件里少了那几层。",
        cause="模块名是别的架构的（query_key_value 属于 ChatGLM、Falcon、BLOOM；q_proj 属于 Llama、Qwen、Mistral；c_attn 属于 GPT-2），或者把正则写进了列表，而列表项按后缀匹配。PEFT 只有一个都没匹配上时才报错。",
        remedy='直接设 target_modules="all-linear"（LLaMA-Factory 是 lora_target: all，axolotl 是 lora_target_linear: true），或用 model.named_modules() 打印线性层名字再填。正则要写成单个字符串，不要放进列表。',
        verify="print_trainable_parameters() 的数量等于各目标层 rank ×（输入维+输出维）之和；保存的文件里每个目标层都有。",
        prevention="包完 PEFT 之后断言每个想要的名字至少匹配到一次。",
        question="target_modules 里写了哪些名字？模型的线性层实际叫什么？",
        quiz="配置要 q_proj、v_proj 和 gate，模型里没有 gate，会怎样？不报错：q_proj、v_proj 加了 LoRA，gate 被悄悄跳过。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed("ValueError", "Target modules {'query_key_value', 'dense'} not found in the base model.")
            ),
            Evidence(
                model=make.modelled(
                    adapter=Adapter(target_modules=("q_proj", "v_proj", "mlp.gate"), source="adapter_config.json")
                ),
                weights=Weights(
                    (
                        WeightFile(
                            "adapter_model.safetensors",
                            9_000_000,
                            tensors=4,
                            names=(
                                "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                                "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                                "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
                                "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight",
                            ),
                            lora_b=2,
                        ),
                    )
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same projections, all of which were asked for
                model=make.modelled(adapter=Adapter(target_modules=("q_proj", "v_proj"), source="adapter_config.json")),
                weights=Weights(
                    (
                        WeightFile(
                            "adapter_model.safetensors",
                            9_000_000,
                            tensors=2,
                            names=(
                                "model.layers.0.self_attn.q_proj.lora_B.weight",
                                "model.layers.0.self_attn.v_proj.lora_B.weight",
                            ),
                            lora_b=2,
                        ),
                    )
                ),
            ),
            Evidence(crash=make.crashed("ValueError", "Tokenizer class LlamaTokenizer not found in the tokenizers package")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs = quoted(self, seen)
        if proofs:
            return self.confirmed(*proofs)
        adapter = seen.model.adapter if seen.model is not None else None
        wanted = adapter.target_modules if adapter is not None and isinstance(adapter.target_modules, tuple) else ()
        files = [file for file in seen.weights.files if file.lora_b and file.names] if seen.weights is not None else []
        if wanted and files:
            return self._compared(wanted, files[0])
        if seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(
                say("the error names another cause", "报错说的是别的原因", -6.0, section="crash", where=seen.crash.cause.where)
            )
        return self.not_checked("crash", "weights", "model")

    def _compared(self, wanted: tuple[str, ...], file: WeightFile) -> Finding:
        """Which of the wanted names an adapter file lacks; names without a plain suffix (a regular expression) are left out."""
        plain = [name for name in wanted if not set(name) & set("*|()[]\\^$+?")]
        lacking = [name for name in plain if not any(f"{name}." in tensor for tensor in file.names)]
        if lacking and len(lacking) < len(plain):
            listed = ", ".join(lacking)
            return self.confirmed(
                say(
                    f"{file.source} holds no lora_A or lora_B for {listed}, which target_modules asks for",
                    f"target_modules 里有 {listed}，但 {file.source} 里没有对应的 lora_A、lora_B",
                    9.0,
                    section="weights",
                    where=file.source,
                    source=file.source,
                )
            )
        if not plain or lacking:
            return self.not_checked("model")
        return self.ruled_out(
            say(
                "the adapter file names every target module",
                "adapter 文件里每个目标模块都有",
                -9.0,
                section="weights",
                where=file.source,
            )
        )
