"""Only a part of the adapter is at work."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, adapters
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Adapter, WeightFile

PART = Later(r"^(.*)\.lora_(?:(A)|B)(?:\.[\w-]+)?(?:\.weight)?$")


class AdapterPartlyLoaded(Case):
    id = "adapter-partly-loaded"
    symptoms = {"worse-in-inference": 0.065}
    stage = "environment"
    needs = ("weights", "log", "crash")
    probe = "weights"
    signatures = (
        r"found missing adapter keys while loading",
        r"found unexpected keys? while loading the (?:checkpoint|adapter)",
        r"expected target modules in .{0,400} but received",
        r"(?:unsupported|unexpected) lora (?:weight|module|tensor)",
        r"lora tensor .{0,80} (?:has unexpected suffix|not found|does not exist)",
    )
    search = (
        "Found missing adapter keys while loading the checkpoint",
        "vllm expected target modules but received",
        "only some lora layers are applied",
        "lora keys language_model.model.layers do not match",
        "adapter 只加载了一部分",
        "加载 LoRA 提示 missing adapter keys",
        "adapter 键名对不上",
    )

    en = Card(
        title="Only part of the adapter is loaded",
        sign="The tuned style is there but the knowledge is not, or the effect is weaker than in training. The loader warned: missing adapter keys, unexpected keys, unsupported LoRA weight.",
        cause="Keys are matched by their full path. The path changes if the model was wrapped or compiled, if transformers renamed its modules, or if a text model in training becomes part of a vision-language model at serving. Keys that do not match stay at zero. Some servers also skip modules they cannot adapt (lm_head, embed_tokens, the vision tower).",
        remedy='Print the difference: set(load_file("adapter_model.safetensors")) against the names of the model, then rename the prefix (model.layers → language_model.model.layers; remove _orig_mod. and module.). If vLLM skips some modules, merge first with model.merge_and_unload() and serve the whole model. A file with lora_A but no lora_B is incomplete: save it again.',
        verify="The loader prints no missing or unexpected key, and the number of adapted modules equals layers × target modules.",
        prevention="Turn the warning into an error in the serving script: warnings.filterwarnings('error', message='Found missing adapter keys'). Compare logits with training once before release.",
        question="What does the loader print when the adapter is loaded, and how many tensors are in the adapter file?",
        quiz="PEFT warns of missing adapter keys and continues. What do those modules do? Their lora_B is zero, so they behave like the base model.",
    )
    zh = Card(
        title="adapter 只加载了一部分",
        sign="语气像微调过的，知识却没进去，或者效果比训练时弱。加载时有警告：missing adapter keys、unexpected keys、unsupported LoRA weight。",
        cause="键名按完整路径匹配。模型被包装或 compile 过、新版 transformers 改了模块名，或者训练时是纯文本模型、推理时变成多模态模型里的一部分，路径就不一样，对不上的全部停在零。有些推理框架还不支持 lm_head、embed_tokens、视觉塔上的 LoRA，会直接略过。",
        remedy='把差异打印出来：set(load_file("adapter_model.safetensors")) 对模型自己的参数名，然后改前缀（model.layers → language_model.model.layers，去掉 _orig_mod.、module.）。vLLM 不支持其中某些模块时，先用 model.merge_and_unload() 合并再部署。只有 lora_A 没有 lora_B 的文件不完整，重新保存。',
        verify="加载时没有 missing 或 unexpected 的键；挂上 LoRA 的模块数等于层数 × 目标模块数。",
        prevention="推理脚本里把这条警告变成报错：warnings.filterwarnings('error', message='Found missing adapter keys')；上线前和训练端对一次 logits。",
        question="加载 adapter 时打印了什么？adapter 文件里有多少个张量？",
        quiz="PEFT 提示 missing adapter keys 后继续运行，这些模块会怎样？lora_B 是零，和 base 一样。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "UserWarning: Found missing adapter keys while loading the checkpoint: ['base_model.model.language_model.model.layers.0.self_attn.q_proj.lora_A.default.weight']."
                )
            ),
            Evidence(  # a file with A and without B
                weights=own.adapter_file(
                    "self_attn.q_proj",
                    "self_attn.v_proj",
                    skip=("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight",),
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                weights=own.adapter_file("self_attn.q_proj", "self_attn.v_proj"),
                model=make.modelled(adapter=Adapter(rank=8, target_modules=("q_proj", "v_proj"))),
                log=make.logged("Loading adapter weights from out"),
            ),
            Evidence(  # a whole adapter that is not at work at all: another case
                weights=own.adapter_file("self_attn.q_proj", "self_attn.v_proj"),
                model=make.modelled(adapter=Adapter(rank=8, target_modules=("q_proj", "v_proj"))),
                outputs=own.paired(same=True),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = quoted(self, seen)
        if told:
            return self.confirmed(*told)
        files = [file for file in adapters(seen) if file.names and file.tensors <= len(file.names)]
        if not files:
            return self.not_checked("weights", "log")
        file = files[0]
        halves = _halves(file)
        if halves is not None and halves.weight > 0:
            return self.confirmed(halves)
        leaning = (*_zero(file), *_unmatched(seen, file), *_wrapped(seen, file))
        if any(exhibit.weight > 0 for exhibit in leaning):
            return self.suspected(*leaning, missing=("log",))
        if halves is not None and any(exhibit.weight < 0 for exhibit in leaning):
            return self.ruled_out(halves, *leaning)
        return self.not_checked("log", exhibits=(halves,) if halves is not None else ())


def _say(file: WeightFile, en: str, zh: str, weight: float) -> Exhibit:
    return say(en, zh, weight, section="weights", where=file.source, source=file.source)


def _halves(file: WeightFile) -> Exhibit | None:
    """Whether every lora_A has its lora_B; None where the file has neither."""
    parts: dict[str, set[str]] = {}
    for name in file.names:
        if match := PART.match(name):
            parts.setdefault(match[1], set()).add("A" if match[2] else "B")
    if not parts:
        return None
    single = [module for module, held in parts.items() if len(held) == 1]
    if single:
        en = f"{len(single)} of {len(parts)} modules have only one of lora_A and lora_B, among them {single[0]}"
        return _say(file, en, f"{len(parts)} 个模块里有 {len(single)} 个缺 lora_A 或 lora_B，例如 {single[0]}", 9.0)
    return _say(file, f"{len(parts)} modules, each with lora_A and lora_B", f"{len(parts)} 个模块，lora_A、lora_B 成对", -3.0)


def _zero(file: WeightFile) -> tuple[Exhibit, ...]:
    if not file.values_read or not 0 < file.zero_lora_b < file.lora_b:
        return ()
    en = f"{file.zero_lora_b} of {file.lora_b} lora_B are zero: never trained"
    return (_say(file, en, f"{file.lora_b} 个 lora_B 里有 {file.zero_lora_b} 个是零：没训练到", 2.0),)


def _unmatched(seen: Evidence, file: WeightFile) -> tuple[Exhibit, ...]:
    """Target modules of the configuration that the file does not hold."""
    adapter = seen.model.adapter if seen.model is not None else None
    targets = adapter.target_modules if adapter is not None else None
    if not isinstance(targets, tuple) or not targets:
        return ()
    held = {match[1].rsplit(".", 1)[-1] for name in file.names if (match := PART.match(name))}
    lacking = [target for target in targets if target.rsplit(".", 1)[-1] not in held]
    if not lacking:
        return (_say(file, "the file has weights for every target module", "目标模块都在文件里", -5.0),)
    return (
        _say(file, f"the file has no weights for {', '.join(lacking[:5])}", f"文件里没有 {', '.join(lacking[:5])} 的权重", 2.0),
    )


def _wrapped(seen: Evidence, file: WeightFile) -> tuple[Exhibit, ...]:
    """An adapter of a text model that is served inside a vision-language model."""
    if seen.model is None or not seen.model.vision or seen.serving is None or seen.serving.adapter is None:
        return ()
    plain = [name for name in file.names if ".model.layers." in name and "language_model" not in name]
    if len(plain) < len(file.names):
        return ()
    en = "keys begin with model.layers, but the served model is a vision-language model (language_model.model.layers)"
    return (_say(file, en, "键名以 model.layers 开头，而推理的是多模态模型（language_model.model.layers）", 3.0),)
