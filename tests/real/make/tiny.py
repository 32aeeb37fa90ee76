"""A tiny random Llama with a byte-level tokenizer, and three small data sets of additions, for the runs kept here."""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def rows(count: int, seed: int) -> list[tuple[str, str, str]]:
    """Question, right answer and wrong answer, no question twice."""
    pairs = random.Random(seed).sample([(a, b) for a in range(10, 100) for b in range(10, 100)], count)
    return [(f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.", f"I think {a} and {b} make {a * b} or so.") for a, b in pairs]


def main() -> None:
    """Writes `tiny/` and the data sets into the current folder."""
    set_seed(7)
    texts = [part for row in rows(400, 1) for part in row]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special[2], pad_token=special[0], model_max_length=256)
    fast.chat_template = TEMPLATE
    fast.save_pretrained("tiny")
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained("tiny")
    for name, count, seed in (("train", 80, 2), ("eval", 16, 3)):
        told = rows(count, seed)
        user = [[{"role": "user", "content": question}] for question, _, _ in told]
        good = [[{"role": "assistant", "content": right}] for _, right, _ in told]
        bad = [[{"role": "assistant", "content": wrong}] for _, _, wrong in told]
        write(f"{name}.jsonl", [{"messages": u + g} for u, g in zip(user, good, strict=True)])
        write(f"pairs-{name}.jsonl", [{"prompt": u, "chosen": g, "rejected": b} for u, g, b in zip(user, good, bad, strict=True)])


def write(path: str, told: list) -> None:
    """One JSON object a line."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in told))


if __name__ == "__main__":
    main()
