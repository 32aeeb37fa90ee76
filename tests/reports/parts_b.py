"""Small files as trainers, converters and servers leave them: the building blocks of the cases beside this file."""

import json
import struct

import numpy as np

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
TOPICS = ("tides", "rust", "leases", "vaccines", "violins", "compilers", "glaciers", "tariffs", "orchids", "bridges")
VERBS = ("describe", "compare", "summarise", "question", "explain", "list the causes of", "translate a note on", "rate")


def lines(*texts):
    return "\n".join(texts) + "\n"


def dump(value):
    return json.dumps(value, ensure_ascii=False, indent=1)


def rows(*values):
    return lines(*(json.dumps(value, ensure_ascii=False) for value in values))


def noise(count, scale=0.05, seed=0):
    return np.random.default_rng(seed).normal(0.0, scale, count)


def falling(first, last, count, seed=0, scale=0.04):
    """A healthy loss: exponential from `first` to `last`, with noise."""
    at = np.linspace(0, 4, count)
    return last + (first - last) * np.exp(-at) + noise(count, scale, seed)


def hf(losses, rates=None, grads=None, *, every=10, per_epoch=200):
    """The dictionaries that a transformers Trainer prints."""
    count = len(losses)
    rates = [2e-5] * count if rates is None else rates
    grads = np.abs(0.9 + noise(count, 0.1, 3)) if grads is None else grads
    return [
        str(
            {
                "loss": round(float(loss), 4),
                "grad_norm": round(float(grads[at]), 6),
                "learning_rate": float(rates[at]),
                "epoch": round((at + 1) * every / per_epoch, 2),
            }
        )
        for at, loss in enumerate(losses)
    ]


def chats(count, answer="It depends on the place and on the season; about {n} in a hundred say so."):
    return [
        {
            "messages": [
                {"role": "user", "content": f"Please {VERBS[n % 8]} {TOPICS[n % 10]} in {n} words."},
                {"role": "assistant", "content": f"On {TOPICS[n % 10]}: " + answer.format(n=n)},
            ]
        }
        for n in range(count)
    ]


def tokenizer(template=CHATML, eos="<|im_end|>", ids=None, bos=None, **more):
    held = {str(number): {"content": text, "special": True} for text, number in (ids or {}).items()}
    more |= {"bos_token": bos} if bos else {}
    return dump({"eos_token": eos, "chat_template": template, "added_tokens_decoder": held, **more})


def safetensors(tensors):
    header, data = {}, b""
    for key, values in tensors.items():
        raw = np.asarray(values, dtype="<f4").tobytes()
        header[key] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


def lora(prefix="base_model.model.model.layers", zero=False):
    names = [f"{prefix}.{n}.self_attn.{m}.lora_{p}.weight" for n in (0, 1) for m in ("q_proj", "v_proj") for p in "AB"]
    return {name: np.full(256, 0.0 if zero and "lora_B" in name else 0.01 * (at + 1)) for at, name in enumerate(names)}


def gguf(**values):
    """A GGUF header: texts, whole numbers and lists of texts."""
    body = b""
    for key, value in values.items():
        dotted = key.replace("__", ".").encode()
        body += struct.pack("<Q", len(dotted)) + dotted
        if isinstance(value, list):
            body += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(
                struct.pack("<Q", len(t.encode())) + t.encode() for t in value
            )
        elif isinstance(value, int):
            body += struct.pack("<II", 4, value)
        else:
            body += struct.pack("<IQ", 8, len(value.encode())) + value.encode()
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body


def traceback(*frames, error):
    told = [text for place, code in frames for text in (f"  File {place}", f"    {code}")]
    return ["Traceback (most recent call last):", *told, error]
