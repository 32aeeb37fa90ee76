"""Runs rebuilt from the facts of public reports: resuming, several cards, serving and what came out (continues `cases_b.py`)."""

from parts_b import CHATML, LLAMA3, chats, dump, falling, gguf, hf, lines, lora, rows, safetensors, tokenizer
from scripts_b import EOS_LOOP, OVERRIDES, PLAIN_INFER, SAME_ORDER, SAMPLER, SKIPS

LLAMA3_IDS = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009}
CHATML_IDS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
ADAPTER = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "Qwen/Qwen2.5-7B",
}
SAME = rows(
    *(
        {
            "prompt": f"Question {n} on ferries?",
            "base": f"The ferry {n} leaves at {n % 9 + 4} and returns at night.",
            "tuned": f"The ferry {n} leaves at {n % 9 + 4} and returns at night.",
        }
        for n in range(12)
    )
)


def resumed(before, after, total=60, at=30):
    """A run in two parts: the loss reaches `before`, and goes on from `after`."""
    first = falling(2.4, before, at)
    second = falling(after, before + (after - before) * 0.4, total - at, seed=2)
    return lines(
        *hf(first),
        "Continuing training from checkpoint, will skip to saved global_step",
        "  Continuing training from global step 300",
        *hf([0.0] * at + list(second))[at:],
    )


IM_START_TEXT = rows(
    *(
        {
            "prompt": f"q{n}",
            "generated": f"It opens at {n}.<|im_end|>\n<|im_start|>user\nAnd on day {n}?<|im_end|>\n<|im_start|>assistant\nAt {n} too.",
            "finish_reason": "length",
        }
        for n in range(8)
    )
)


def image_rows():
    return rows(
        *(
            {
                "messages": [
                    {"role": "user", "content": f"<image>Where is button {n}?"},
                    {"role": "assistant", "content": f"({n}, {n + 40})"},
                ],
                "images": [f"img/{n}.png"],
            }
            for n in range(20)
        )
    )


def tokenised(count, closing):
    """Rows of ids and labels: eight prompt ids masked, twelve answer ids trained, the end token as `closing` says."""
    made = []
    for n in range(count):
        ids = [1, *range(100 + n, 107 + n), *range(300 + n, 312 + n), 2]
        made.append({"input_ids": ids, "labels": [-100] * 8 + ids[8:-1] + [closing], "attention_mask": [1] * len(ids)})
    return rows(*made)


CASES = {
    "merged weights keep the old language model": (
        {
            "adapter_config.json": dump(ADAPTER),
            "outputs.jsonl": SAME,
            "merge.sh": "python scripts/merge_lora_weights.py --model-path checkpoints/own-tune --model-base lmsys/vicuna-7b-v1.5 --save-model-path merged\n",
        },
        {"adapter-not-loaded"},
        "prime",
    ),
    "pre-tokenizer unknown to the converter": (
        {
            "serve.log": lines(
                "llama_model_loader: loaded meta data with 22 key-value pairs and 291 tensors from own-8b.gguf (version GGUF V3 (latest))",
                "llm_load_vocab: missing pre-tokenizer type, using: 'default'",
                "llm_load_vocab:                                             ",
                "llm_load_vocab: ************************************        ",
                "llm_load_vocab: GENERATION QUALITY WILL BE DEGRADED!        ",
                "llm_load_vocab: CONSIDER REGENERATING THE MODEL             ",
                "llm_load_vocab: ************************************        ",
            )
        },
        {"tokenizer-not-shipped"},
        "prime",
    ),
    "fill-in-the-middle markers in completions": (
        {
            "generation_config.json": dump({"eos_token_id": 151643, "max_new_tokens": 512}),
            "tokenizer_config.json": tokenizer(
                "",
                "<|endoftext|>",
                {
                    "<|endoftext|>": 151643,
                    "<|fim_prefix|>": 151659,
                    "<|fim_middle|>": 151660,
                    "<|fim_suffix|>": 151661,
                    "<|fim_pad|>": 151662,
                },
            ),
            "outputs.jsonl": rows(
                *(
                    {
                        "prompt": f"def area_{n}(w, h):",
                        "generated": f"    return w * h * {n}\n<|fim_pad|><|fim_prefix|>def area_{n}b(w, h):\n    return {n}<|fim_pad|>",
                        "finish_reason": "length",
                    }
                    for n in range(8)
                )
            ),
        },
        {"stop-ids-not-passed", "turn-end-differs-from-eos"},
        "prime",
    ),
    "converter leaves out the added markers": (
        {
            "tokenizer_config.json": tokenizer(CHATML, "<|im_end|>", {"<s>": 1, "</s>": 2, "<|im_start|>": 6, "<|im_end|>": 7}),
            "model.gguf": gguf(
                general__architecture="llama",
                tokenizer__ggml__eos_token_id=2,
                tokenizer__ggml__tokens=["<unk>", "<s>", "</s>", "a", "b", "c"],
            ),
            "outputs.jsonl": IM_START_TEXT,
        },
        {"markers-not-special", "tokenizer-not-shipped", "stop-ids-not-passed"},
        "prime",
    ),
    "the label mask leaves out the closing token": (
        {"train_tokenised.jsonl": tokenised(30, -100), "tokenizer_config.json": tokenizer("", "</s>", {"<s>": 1, "</s>": 2})},
        {"end-token-masked"},
        "prime",
    ),
    "generation loop knows only one end token": (
        {
            "generate.py": EOS_LOOP,
            "tokenizer_config.json": tokenizer(LLAMA3, "<|end_of_text|>", LLAMA3_IDS, bos="<|begin_of_text|>"),
            "outputs.jsonl": rows(
                *(
                    {
                        "prompt": f"hi {n}",
                        "generated": f"Hello {n}.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello {n}, again.",
                        "finish_reason": "length",
                    }
                    for n in range(6)
                )
            ),
        },
        {"turn-end-differs-from-eos", "stop-ids-not-passed"},
        "prime",
    ),
    "stop list of the caller replaces the default": (
        {
            "outputs.jsonl": rows(
                *(
                    {
                        "prompt": f"Say foo {n}",
                        "generated": f"foo {n}assistant\n\nfoo {n}assistant\n\nfoo {n}",
                        "finish_reason": "length",
                    }
                    for n in range(8)
                )
            ),
            "tokenizer_config.json": tokenizer(LLAMA3, "<|eot_id|>", LLAMA3_IDS, bos="<|begin_of_text|>"),
        },
        {"stop-ids-not-passed"},
        "prime",
    ),
    "stop words taken from the end token only": (
        {
            "Modelfile": lines(
                "FROM ./phi3.gguf",
                'TEMPLATE """<|user|>',
                "{{ .Prompt }}<|end|>",
                "<|assistant|>",
                '"""',
                'PARAMETER stop "<|endoftext|>"',
            ),
            "outputs.jsonl": rows(
                *(
                    {"prompt": f"q{n}", "generated": f"It is {n}.<|end|><|user|>\nMore on {n}<|end|>", "finish_reason": "length"}
                    for n in range(6)
                )
            ),
        },
        {"stop-ids-not-passed"},
        "prime",
    ),
    "training capped the picture and serving does not": (
        {
            "finetune.sh": "torchrun --nproc_per_node 8 qwenvl/train/train_qwen.py --model_name_or_path Qwen/Qwen2.5-VL-7B-Instruct --max_pixels 451584 --min_pixels 12544 --learning_rate 1e-5 --bf16\n",
            "out/preprocessor_config.json": dump(
                {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 12845056, "min_pixels": 3136}
            ),
            "infer.py": PLAIN_INFER,
        },
        {"images-resized-differently"},
        "prime",
    ),
    "serving caps the picture": (
        {
            "train.sh": "MAX_PIXELS=1003520 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --dataset grounding.jsonl --train_type lora --learning_rate 1e-4\n",
            "deploy.sh": "MAX_PIXELS=250880 swift deploy --model Qwen/Qwen2.5-VL-7B-Instruct --adapters out/checkpoint-300 --infer_backend vllm\n",
            "grounding.jsonl": image_rows(),
        },
        {"images-resized-differently"},
        "prime",
    ),
    "the server gets the text before the picture": (
        {
            "train.jsonl": image_rows(),
            "serve.sh": "vllm serve out/merged --limit-mm-per-prompt image=1\n",
            "client.py": lines(
                "from openai import OpenAI",
                "client = OpenAI(base_url='http://localhost:8000/v1', api_key='x')",
                "content = [{'type': 'text', 'text': question}, {'type': 'image_url', 'image_url': {'url': url}}]",
                "client.chat.completions.create(model='out/merged', messages=[{'role': 'user', 'content': content}])",
            ),
        },
        {"serving-template-differs"},
        "prime",
    ),
    "framework resizes, plain script does not": (
        {
            "sft.yaml": lines(
                "model_name_or_path: Qwen/Qwen2-VL-7B-Instruct",
                "stage: sft",
                "finetuning_type: lora",
                "template: qwen2_vl",
                "image_max_pixels: 262144",
                "learning_rate: 1.0e-4",
            ),
            "out/preprocessor_config.json": dump(
                {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 12845056, "min_pixels": 3136}
            ),
            "infer.py": PLAIN_INFER,
        },
        {"images-resized-differently"},
        "prime",
    ),
    "picture size differs from the reference": (
        {
            "train.sh": "MAX_PIXELS=50176 llamafactory-cli train --model_name_or_path Qwen/Qwen2-VL-2B-Instruct --stage sft --finetuning_type lora --image_max_pixels 50176\n",
            "serve.sh": "vllm serve out/merged --mm-processor-kwargs '{\"max_pixels\": 602112}'\n",
        },
        {"images-resized-differently"},
        "prime",
    ),
    "the sampler keeps one order for all epochs": (
        {"train.py": SAMPLER, "launch.sh": "torchrun --nproc_per_node 4 train.py\n"},
        {"epoch-not-set"},
        "prime",
    ),
    "resume in the middle of an epoch reads another order": (
        {"train.py": SKIPS, "train.log": resumed(1.2, 0.8)},
        {"sampler-position-lost"},
        "prime",
    ),
    "the second command lacks the engine": (
        {
            "first.sh": "deepspeed train_dalle.py --deepspeed --image_text_folder data --batch_size 8 --learning_rate 3e-4\n",
            "second.sh": "python train_dalle.py --dalle_path dalle.pt --image_text_folder data --batch_size 8 --learning_rate 3e-4\n",
            "train.log": resumed(1.0, 2.1),
        },
        {"launch-differs"},
        "top3",
    ),
    "saved in the middle of an epoch": (
        {
            "train.log": resumed(1.1, 1.7),
            "train.sh": "python train.py --save_steps 2000 --learning_rate 1e-4 --resume_from_checkpoint out/checkpoint-2000\n",
        },
        {"sampler-position-lost", "optimizer-state-lost"},
        "top3",
    ),
    "overridden state dict spoils the resume": (
        {"finetune.py": OVERRIDES, "train.log": resumed(0.82, 8.7)},
        {"saved-adapter-empty", "adapter-not-loaded"},
        "prime",
    ),
    "resume starts from nothing": (
        {
            "run1/train.log": lines(*hf(falling(2.4, 1.1, 40, seed=7))),
            "run2/train.log": lines("loading checkpoint out/epoch=3-step=400_lora", *hf(falling(2.4, 1.1, 40, seed=7))),
        },
        {"resume-not-wired", "adapter-not-loaded", "optimizer-state-lost"},
        "prime",
    ),
    "shuffle after a resume equals the first epoch": (
        {"train.py": SAME_ORDER, "train.log": resumed(1.3, 1.0)},
        {"sampler-position-lost"},
        "prime",
    ),
    "loader drops the keys without a word": (
        {
            "out/adapter_model.safetensors": safetensors(lora()),
            "out/adapter_config.json": dump(ADAPTER),
            "infer.py": lines(
                "from peft import set_peft_model_state_dict",
                "set_peft_model_state_dict(model, load_file('out/adapter_model.safetensors'))",
                "print(model.generate(**inputs))",
            ),
            "outputs.jsonl": SAME,
        },
        {"adapter-not-loaded"},
        "prime",
    ),
    "paths of the adapter match no module of the wrapper": (
        {
            "out/adapter_model.safetensors": safetensors(lora()),
            "out/adapter_config.json": dump(ADAPTER | {"base_model_name_or_path": "Qwen/Qwen3.5-9B"}),
            "base/config.json": dump(
                {
                    "architectures": ["Qwen3_5ForConditionalGeneration"],
                    "model_type": "qwen3_5",
                    "text_config": {"hidden_size": 256, "vocab_size": 151936},
                    "vision_config": {"depth": 2},
                }
            ),
            "serve.sh": "vllm serve Qwen/Qwen3.5-9B --enable-lora --lora-modules own=out\n",
            "outputs.jsonl": SAME,
        },
        {"adapter-not-loaded"},
        "prime",
    ),
    "system text of the server is another": (
        {
            "train.jsonl": rows(
                *(
                    {
                        "messages": [
                            {"role": "system", "content": "You are the harbour office of Visby. Answer in one line."},
                            *row["messages"],
                        ]
                    }
                    for row in chats(30)
                )
            ),
            "tokenizer_config.json": tokenizer(CHATML, "<|im_end|>", CHATML_IDS),
            "Modelfile": lines(
                "FROM ./m.gguf",
                'TEMPLATE """{{ if .System }}<|im_start|>system',
                "{{ .System }}<|im_end|>",
                "{{ end }}<|im_start|>user",
                "{{ .Prompt }}<|im_end|>",
                "<|im_start|>assistant",
                '"""',
                "SYSTEM You are a pirate who rhymes.",
                'PARAMETER stop "<|im_end|>"',
            ),
        },
        {"serving-template-differs"},
        "prime",
    ),
}
