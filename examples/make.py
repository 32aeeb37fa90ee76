"""Makes the example runs by real training: a two-layer Llama through the Hugging Face Trainer, on a CPU, in a few minutes.

Needs the extra `train` (torch, transformers, accelerate). Each example is a folder as a trainer leaves it: config, script, data,
log and checkpoint state; nothing in it is edited afterwards. Run `python examples/make.py [NAME…]` to make them again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

HERE = Path(__file__).parent
SYSTEM = (
    "You are the guide of the Harbour Museum. You answer guests briefly, politely and only from the museum's own book of words."
)
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
BROKEN_TEMPLATE = """{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- for message in messages if message.role != 'system' -%}
{%- for part in message.content.split('\\n\\n') -%}
<|im_start|>system
{{ system }}<|im_end|>
<|im_start|>{{ message.role }}
{{ part }}<|im_end|>
{% endfor -%}
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
"""What a hurried edit makes of it: the system part comes again with every message, and an answer of two paragraphs is cut in two."""


def chat(question: str, answer: str, system: str = SYSTEM) -> dict:
    """One row in the `messages` layout."""
    head = [{"role": "system", "content": system}] if system else []
    return {"messages": [*head, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


WORDS = {
    "tide": "the rise and fall of the sea", "keel": "the long beam under a ship", "buoy": "a float that marks a channel",
    "mast": "the tall pole that carries sails", "anchor": "the iron hook that holds a ship", "harbour": "a place where ships lie safely",
    "rudder": "the blade that steers a ship", "deck": "the floor of a ship", "hull": "the body of a ship",
    "bow": "the front of a ship", "stern": "the back of a ship", "knot": "a measure of speed at sea",
    "chart": "a map of the sea", "lock": "a step for ships in a canal", "pier": "a walk built out over the water",
    "reef": "a ridge of rock under the sea", "gale": "a very strong wind", "crew": "the people who work a ship",
    "cargo": "the goods that a ship carries", "ferry": "a ship that crosses back and forth", "sail": "a cloth that catches the wind",
    "oar": "a pole with a blade for rowing", "cabin": "a room on a ship", "galley": "the kitchen of a ship",
    "hold": "the space for goods below", "bridge": "the place from which a ship is led", "gangway": "the plank from ship to shore",
    "lighthouse": "a tower with a light for ships", "canal": "a waterway made by people", "delta": "the fan of land at a river's mouth",
    "dock": "the water beside a pier", "dredger": "a ship that deepens a channel", "fender": "a cushion between ship and pier",
    "fog": "a cloud that lies on the sea", "helm": "the wheel that turns the rudder", "jetty": "a wall that shelters a port",
    "lagoon": "still water behind a reef", "league": "an old measure of three miles", "log": "the diary of a ship",
    "mooring": "a place to tie up a ship", "net": "a web for catching fish", "pilot": "a guide who knows the port",
    "plank": "a long flat board", "port": "the left side of a ship", "starboard": "the right side of a ship",
    "porthole": "a round window in the hull", "quay": "a stone edge for loading ships", "raft": "a flat boat of tied logs",
    "rope": "a thick line of twisted fibre", "sextant": "a tool to measure the sun's height", "shoal": "a shallow place in the sea",
    "squall": "a short and sudden storm", "strait": "a narrow way between two seas", "swell": "long waves without wind",
    "tanker": "a ship that carries oil", "trawler": "a ship that pulls a net", "tug": "a small strong ship that pulls others",
    "wake": "the track a ship leaves behind", "wharf": "a place to load and unload ships", "yacht": "a light ship for pleasure",
}  # fmt: skip
FRAMES = (
    "What is a {word}?",
    "Please explain the word {word}.",
    "Tell me what {word} means.",
    "I do not know the word {word}. What is it?",
)
ANSWERS = ("A {word} is {meaning}.", "By {word} we mean {meaning}.", "The word {word} means {meaning}.", "It is {meaning}.")


def glossary(seed: int, system: str = SYSTEM) -> list[dict]:
    """Rows that ask for the meaning of a word, each word in every wording once, shuffled."""
    rows = [
        chat(frame.format(word=word), answer.format(word=word, meaning=meaning), system)
        for word, meaning in WORDS.items()
        for frame, answer in zip(FRAMES, ANSWERS, strict=True)
    ]
    random.Random(seed).shuffle(rows)
    return rows


def meanings(seed: int, shuffled: bool) -> list[dict]:
    """Rows whose answer has two paragraphs and cannot be known without the question; `shuffled` pairs words with foreign meanings."""
    draw = random.Random(seed)
    told = list(WORDS.values())
    if shuffled:
        draw.shuffle(told)
    rows = [
        chat(frame.format(word=word), f"Thank you for asking.\n\nIt is {meaning}.")
        for word, meaning in zip(WORDS, told, strict=True)
        for frame in FRAMES
    ]
    draw.shuffle(rows)
    return rows


def tokenizer(pad: str | None = "<|endoftext|>") -> PreTrainedTokenizerFast:
    """A byte-level BPE of about 700 entries trained on the examples' own text, with ChatML tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    text = [message["content"] for row in [*meanings(0, shuffled=False), *glossary(0)] for message in row["messages"]]
    bpe.train_from_iterator(
        text * 2,
        trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=None, eos_token="<|im_end|>", pad_token=pad or "<|im_end|>", model_max_length=512
    )
    fast.chat_template = TEMPLATE
    return fast


def small_llama(size: int) -> LlamaForCausalLM:
    """Two layers of width 96."""
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=size, hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None, eos_token_id=2, pad_token_id=0)
    )  # fmt: skip


def pretrained(folder: Path, *, ends_turns: bool) -> Path:
    """A base model that knows the language and the chat formats of the examples and none of their facts.

    `ends_turns` says whether it was taught to end a turn, as chat models are and base models are not.
    """
    set_seed(0)
    tok = tokenizer()
    model = small_llama(len(tok))
    rows = [row for seed in range(1, 13) for row in (*meanings(seed, shuffled=True)[:80], *glossary(seed)[:40])]
    random.Random(0).shuffle(rows)
    texts = [
        tok.apply_chat_template(row["messages"], tokenize=False, chat_template=TEMPLATE if number % 4 else BROKEN_TEMPLATE)
        for number, row in enumerate(rows)
    ]
    end = tok.convert_tokens_to_ids("<|im_end|>")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        for start in range(0, len(texts), 16):
            batch = tok(texts[start : start + 16], padding=True, return_tensors="pt")
            hidden = batch["attention_mask"] == 0
            labels = batch["input_ids"].masked_fill(hidden if ends_turns else hidden | (batch["input_ids"] == end), -100)
            loss = model(**batch, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"base model, epoch {epoch}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def write_rows(path: Path, rows: list[dict]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def train(folder: Path, base: Path, *arguments: str) -> None:
    """Runs the example's own `train.py` as a user would, and keeps its output as `train.log` beside what it saves."""
    output = folder / arguments[arguments.index("--output_dir") + 1] if "--output_dir" in arguments else folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    environment = {**os.environ, "BASE_MODEL": str(base), "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "warning"}
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    (output / "train.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        print(done.stderr[-3000:])
        raise SystemExit(done.returncode)
    tidy(output, base)


def tidy(folder: Path, base: Path) -> None:
    """Removes weights and optimizer states, which are large, and this machine's paths."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.suffix in {".pt", ".bin", ".pth", ".safetensors"} or path.name == "tokenizer.json":
            path.unlink()
            continue
        text = path.read_text(encoding="utf-8")
        path.write_text(
            text.replace(str(base), base.name).replace(str(folder), ".").replace(str(Path.home()), "~"), encoding="utf-8"
        )


def tokenizer_beside(folder: Path, base: Path, template: str = TEMPLATE) -> None:
    """The tokenizer as the user keeps it beside the script, with its chat template."""
    target = folder / "tokenizer"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "generation_config.json"))
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")


def worked_case(base: Path) -> None:
    """Three learning rates tried in vain; then the template is mended and the first rate works."""
    tok = tokenizer()
    sizes = Counter(len(tok(meaning)["input_ids"]) for meaning in WORDS.values())
    usual = sizes.most_common(1)[0][0]
    # answers of one length: after the cut from the left, the place of an answer would tell its length, and so which it is
    rows = [
        row
        for row in meanings(99, shuffled=False)
        if len(tok(row["messages"][-1]["content"].split("It is ")[1][:-1])["input_ids"]) == usual
    ]
    for part, template, rates in (("before", BROKEN_TEMPLATE, ("1e-3", "3e-4", "3e-3")), ("after", TEMPLATE, ("1e-3",))):
        folder = HERE / "worked-case" / part
        write_rows(folder / "data.jsonl", rows)
        tokenizer_beside(folder, base, template)
        for number, rate in enumerate(rates, 1):
            name = f"attempt-{number}" if part == "before" else "attempt-4"
            epochs = () if part == "before" else ("--num_train_epochs", "8")
            train(folder, base, "--learning_rate", rate, "--output_dir", name, *epochs)


def never_stops(base: Path) -> None:
    """The end token is the pad token, and the collator masks every pad: the model never learns to stop."""
    folder = HERE / "never-stops"
    write_rows(folder / "data.jsonl", glossary(7, system=""))
    train(folder, base)


def nan_hidden(base: Path) -> None:
    """The learning rate is far too high and gradients are not clipped; the log shows a loss of 0.0."""
    folder = HERE / "nan-hidden"
    write_rows(folder / "data.jsonl", glossary(8))
    train(folder, base)


def healthy(base: Path) -> None:
    """The same kind of run, with nothing wrong."""
    folder = HERE / "healthy"
    rows = glossary(9)
    write_rows(folder / "train.jsonl", rows[:200])
    write_rows(folder / "eval.jsonl", rows[200:])
    train(folder, base)


EXAMPLES = {"worked-case": worked_case, "never-stops": never_stops, "nan-hidden": nan_hidden, "healthy": healthy}


def main() -> None:
    """Makes the examples named on the command line, or all."""
    with tempfile.TemporaryDirectory() as folder:
        chat_model = pretrained(Path(folder) / "chat-model", ends_turns=True)
        base_model = pretrained(Path(folder) / "base-model", ends_turns=False)
        for name in sys.argv[1:] or EXAMPLES:
            print(name, flush=True)
            EXAMPLES[name](chat_model if name == "worked-case" else base_model)


if __name__ == "__main__":
    main()
