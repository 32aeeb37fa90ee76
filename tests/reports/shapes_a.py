"""What the rebuilt runs have in common: the Trainer's printed rows, JSON lines, weight-file headers, a crash's frame lines."""

import json
import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Rebuilt:
    """One report's facts as the files its run left.

    id: the fault in words. files: name → text or bytes. expected: the true case, or several names under which it is right.
    how: "prime" first suspect or confirmed first; "top3"; "no_fault" nothing confirmed or suspected on evidence.
    beside: what is rightly confirmed beside the cause.
    """

    id: str
    files: dict[str, str | bytes]
    expected: tuple[str, ...] = ()
    how: str = "prime"
    beside: tuple[str, ...] = ()


def lines(*parts):
    """Text of one line a part; lists are spread."""
    flat = [piece for part in parts for piece in (part if isinstance(part, list) else [part])]
    return "\n".join(str(piece) for piece in flat) + "\n"


def curve(first, last, count, seed, noise=0.06, *, pace=4.0):
    """A loss that decays from `first` to `last` with the jitter of small batches."""
    draw = random.Random(seed)
    at = (last + (first - last) * math.exp(-pace * step / count) for step in range(count))
    return [round(value * math.exp(draw.gauss(0, noise)), 4) for value in at]


def cosine(peak, count, warm=5):
    """A learning rate with a short warm-up and a cosine to 0."""
    return [
        peak * (step + 1) / warm if step < warm else peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / (count - warm)))
        for step in range(count)
    ]


def trainer(losses, rates, epochs=1.0, norms=None, *, seed=0):
    """The Trainer's printed rows."""
    draw, total = random.Random(seed), len(losses)
    norms = norms or [round(0.9 * math.exp(draw.gauss(0, 0.25)), 4) for _ in losses]
    rows = []
    for index, (loss, rate, norm) in enumerate(zip(losses, rates, norms, strict=True)):
        epoch = round(epochs * (index + 1) / total, 2)
        rows.append(str({"loss": loss, "grad_norm": norm, "learning_rate": rate, "epoch": epoch}))
    return rows


def healthy(seed=3, *, count=60, peak=2e-4, epochs=2.0, first=1.6, last=0.9):
    """A log with nothing wrong."""
    return lines(trainer(curve(first, last, count, seed), cosine(peak, count), epochs, seed=seed))


def jsonl(*rows):
    """JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def tokenised(bos, count=30, masked=4, eos=2):
    """Rows of ids and labels: `bos` at the start, the first `masked` ids out of the loss."""
    rows = []
    for row in range(count):
        ids = [*bos, *(300 + (row * 17 + k * 31) % 5000 for k in range(12 + row % 5)), eos]
        labels = [-100] * (masked + len(bos)) + ids[masked + len(bos) :]
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return rows


def crash(frames, error, before=""):
    """A traceback: frames of (file, line, function, code), then the error's own line."""
    told = [f'  File "{file}", line {line}, in {where}\n    {code}' for file, line, where, code in frames]
    return lines(*([before] if before else []), "Traceback (most recent call last):", told, error)


def safetensors(tensors):
    """A weight file of the given names and shapes, half precision, every value 0.0156 so that nothing is empty."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + b"\x00\x24" * (at // 2)


def config(family, **more):
    """A config.json of a common small model."""
    known = {
        "qwen2": ("Qwen2ForCausalLM", 151936, 151643),
        "qwen3": ("Qwen3ForCausalLM", 151936, 151645),
        "llama": ("LlamaForCausalLM", 128256, 128001),
        "gemma2": ("Gemma2ForCausalLM", 256000, 1),
    }
    architecture, vocabulary, eos = known.get(family, ("", 32000, 2))
    held = {
        "architectures": [architecture],
        "model_type": family,
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": vocabulary,
        "eos_token_id": eos,
        "torch_dtype": "bfloat16",
    }
    return json.dumps({**held, **more}, indent=2)


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
