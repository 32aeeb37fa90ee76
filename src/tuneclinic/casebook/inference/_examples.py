"""Builders of small evidence for the examples of this folder."""

from __future__ import annotations

from typing import Any

from tuneclinic.sections import Output, Outputs, Score, Scores, Serving, Tokenizer, WeightFile, Weights

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] + '<|eot_id|>' }}"
    "{% endfor %}"
)
OLLAMA_CHATML = "<|im_start|>user\n{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n"
OLLAMA_LLAMA2 = "[INST] {{ .Prompt }} [/INST]"


def served(engine: str = "vllm", source: str = "serve.sh", **values: Any) -> Serving:
    """A server's configuration, with a place for each value."""
    return Serving(engine=engine, places=dict.fromkeys(values, f"{source}:2"), sources=(source,), **values)


def tokenized(template: str | None = None, files: tuple[str, ...] = (), **values: Any) -> Tokenizer:
    """The tokenizer's files: its configuration, and `files` beside it."""
    places = {"template": "tokenizer_config.json:9"} if template else {}
    return Tokenizer(template=template, places=places, sources=("tokenizer_config.json", *files), **values)


def answered(*texts: str, **values: Any) -> Outputs:
    """Outputs to numbered prompts; a keyword gives every one of them that field."""
    return Outputs(
        tuple(
            Output(values.get("prompt", f"question {n}"), text, f"outputs.jsonl:{n}", "outputs.jsonl",
                   **{name: value for name, value in values.items() if name != "prompt"})
            for n, text in enumerate(texts, 1)
        )
    )  # fmt: skip


def paired(same: bool) -> Outputs:
    """Answers beside the base model's: equal, or not."""
    return Outputs(
        tuple(
            Output(
                f"q{n}",
                f"Clause {n} of the contract ends it." if not same else f"It depends on many things, such as item {n}.",
                f"outputs.jsonl:{n}",
                "outputs.jsonl",
                base=f"It depends on many things, such as item {n}.",
            )
            for n in range(1, 6)
        )
    )


def scored(*rows: tuple[str, float]) -> Scores:
    """A table of one metric: task and value."""
    return Scores(tuple(Score(task, "f1", value, where=f"scores.csv:{n}") for n, (task, value) in enumerate(rows, 2)))


def lost(before: float = 0.42, after: float = 0.22) -> Scores:
    """The tuned model scores below its base on the task itself."""
    return Scores((Score("contracts", "f1", after, before, domain=True, where="scores.csv:2"),))


def adapter_file(*modules: str, layers: int = 2, zero: int = 0, skip: tuple[str, ...] = (), **values: Any) -> Weights:
    """A saved adapter with lora_A and lora_B of each module in each layer."""
    names = tuple(
        name
        for layer in range(layers)
        for module in modules
        for part in "AB"
        if (name := f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight") not in skip
    )
    count = sum("lora_B" in name for name in names)
    return Weights(
        (WeightFile("adapter_model.safetensors", 40_000_000, tensors=len(names), names=names, lora_b=count, zero_lora_b=zero,
                    values_read=True, **values),)
    )  # fmt: skip


def model_file(*names: str, source: str = "merged/model.safetensors", **values: Any) -> Weights:
    """A whole model in one file: one layer, and the given tensors."""
    held = ("model.layers.0.self_attn.q_proj.weight", "model.norm.weight", *names)
    return Weights((WeightFile(source, 2_000_000_000, tensors=len(held), names=held, **values),))
