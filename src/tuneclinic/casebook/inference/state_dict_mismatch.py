"""Weights and model do not have the same tensors."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference._facts import Later, texts
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

SIZES = Later(
    r"size mismatch for ([\w.]{1,200}):.{0,60}?shape torch\.size\(\[([\d, ]+)\]\) from checkpoint.{0,60}?current model is torch\.size\(\[([\d, ]+)\]\)",
    re.IGNORECASE,
)
"""torch's sentence on one tensor."""
VOCABULARY = Later(r"embed_tokens|lm_head|wte|word_embeddings|embed_out", re.IGNORECASE)
ADAPTER = Later(r"lora_|base_model\.model", re.IGNORECASE)


class StateDictMismatch(Case):
    id = "state-dict-mismatch"
    symptoms = {"crashes": 0.06}
    stage = "environment"
    needs = ("crash", "log")
    probe = "weights"
    signatures = (
        r"error\(s\) in loading state_dict for",
        r"size mismatch for [\w.]+:",
        r"missing key\(s\) in state_dict",
        r"unexpected key\(s\) in state_dict",
        r"you set `?ignore_mismatched_sizes`? to `?false`?",
    )
    search = (
        "RuntimeError: Error(s) in loading state_dict for",
        "size mismatch for base_model.model.model.embed_tokens.weight",
        "Missing key(s) in state_dict",
        "Unexpected key(s) in state_dict _orig_mod module",
        "加载权重报 size mismatch",
        "state_dict 键名对不上",
        "load_state_dict 报 Missing key(s)",
    )

    en = Card(
        title="Checkpoint and model do not match",
        sign="RuntimeError: Error(s) in loading state_dict, followed by size mismatch, missing keys or unexpected keys.",
        cause="The file was saved from another model than the one it is loaded into. Same names but other sizes: the vocabulary was resized on one side, or rank or base model differ. Other names: a prefix of DDP (module.), torch.compile (_orig_mod.) or PEFT (base_model.model.), or another transformers version.",
        remedy="Sizes of embed_tokens or lm_head: load the tokenizer of training and call model.resize_token_embeddings(N), with N rows as in the checkpoint, before PeftModel.from_pretrained. lora_A/lora_B: take r and the base model from adapter_config.json. Prefixes: {k.removeprefix('module.').removeprefix('_orig_mod.'): v for k, v in state.items()}. ZeRO or FSDP shards: first run zero_to_fp32.py, or torch.distributed.checkpoint.format_utils.dcp_to_torch_save. Use strict=False only to print the two lists, never in production.",
        verify="load_state_dict returns <All keys matched successfully>, and the loss on one training batch equals the one before saving.",
        prevention="Save with save_pretrained (it writes names without wrapper prefixes), with tokenizer and config in the same folder, and reload once after the first save.",
        question="Which keys does the error list, and which two shapes does it print?",
        quiz="size mismatch for embed_tokens: [32064, 4096] in the checkpoint, [32000, 4096] in the model. What was forgotten? resize_token_embeddings before loading.",
    )
    zh = Card(
        title="权重和模型结构对不上",
        sign="RuntimeError: Error(s) in loading state_dict，后面跟着 size mismatch、Missing key(s) 或 Unexpected key(s)。",
        cause="存权重的模型和现在加载的模型不是同一个。名字相同、尺寸不同：有一边改过词表，或 rank、base 不同。名字不同：带了 DDP（module.）、torch.compile（_orig_mod.）、PEFT（base_model.model.）的前缀，或 transformers 版本不同。",
        remedy="embed_tokens、lm_head 尺寸不对：先加载训练时的 tokenizer，按 checkpoint 里的行数 N 调 model.resize_token_embeddings(N)，再 PeftModel.from_pretrained。lora_A/lora_B 不对：r 和 base 以 adapter_config.json 为准。前缀不对：{k.removeprefix('module.').removeprefix('_orig_mod.'): v for k, v in state.items()}。ZeRO、FSDP 分片：先用 zero_to_fp32.py 或 torch.distributed.checkpoint.format_utils.dcp_to_torch_save 合起来。strict=False 只用来打印两份清单，别拿去上线。",
        verify="load_state_dict 返回 <All keys matched successfully>，同一个训练 batch 的 loss 与保存前一致。",
        prevention="用 save_pretrained 保存（不带包装前缀），tokenizer、config 放在同一目录；第一次保存后马上重新加载一遍。",
        question="报错列出了哪些键？两边的 shape 各是多少？",
        quiz="embed_tokens 在 checkpoint 里是 [32064, 4096]，模型里是 [32000, 4096]，漏了哪一步？加载前没有 resize_token_embeddings。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "RuntimeError",
                    "Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize mismatch for base_model.model.model.embed_tokens.weight: copying a param with shape torch.Size([32064, 4096]) from checkpoint, the shape in current model is torch.Size([32000, 4096]).",
                )
            ),
            Evidence(
                crash=make.crashed(
                    "RuntimeError",
                    'Error(s) in loading state_dict for GPT:\n\tMissing key(s) in state_dict: "transformer.wte.weight".\n\tUnexpected key(s) in state_dict: "_orig_mod.transformer.wte.weight".',
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x4096 and 2048x4096)")),
            Evidence(  # a warning that stock models print on loading
                crash=make.crashed("ValueError", "Asking to pad but the tokenizer does not have a padding token."),
                log=make.logged(
                    "Some weights of the model checkpoint at llama were not used when initializing LlamaForCausalLM: ['model.layers.0.self_attn.rotary_emb.inv_freq']"
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = quoted(self, seen)
        if told:
            return self.confirmed(*told, *_taken_apart(seen))
        cause = seen.crash.cause if seen.crash is not None else None
        if cause is None:
            return self.not_checked("crash")
        text = f"it is another error: {cause.kind}", f"是另一种报错：{cause.kind}"
        return self.ruled_out(say(*text, -6.0, section="crash", where=cause.where, source=cause.source))


def _taken_apart(seen: Evidence) -> tuple[Exhibit, ...]:
    """What the sizes or names in the error say of the reason."""
    for text, where, source, section in texts(seen):
        if match := SIZES.search(text):
            name, saved, now = match[1], match[2], match[3]
            if VOCABULARY.search(name):
                why = f"the vocabulary differs: {saved.split(',')[0]} rows saved, {now.split(',')[0]} in the model", f"词表大小不同：保存时 {saved.split(',')[0]} 行，现在 {now.split(',')[0]} 行"  # fmt: skip
            elif ADAPTER.search(name):
                why = f"the adapter's rank or base differs: [{saved}] saved, [{now}] now", f"adapter 的 rank 或 base 不同：保存时 [{saved}]，现在 [{now}]"  # fmt: skip
            else:
                why = f"the model's shape differs: [{saved}] saved, [{now}] now", f"模型尺寸不同：保存时 [{saved}]，现在 [{now}]"
            return (say(*why, section=section, where=where, source=source),)
        prefix = re.search(r"\b(_orig_mod\.|module\.(?=\w)|base_model\.model\.)", text)
        if prefix and "state_dict" in text:
            why = f"keys carry the prefix {prefix[1]}", f"键名带前缀 {prefix[1]}"
            return (say(*why, section=section, where=where, source=source),)
    return ()
