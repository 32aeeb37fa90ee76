"""Start tokens twice, and pads where generation begins."""

import json

from shapes_a import Rebuilt, jsonl, lines, tokenised

BOS_TWICE = json.dumps(
    {
        "add_bos_token": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }} {% endfor %}",
        "added_tokens_decoder": {"1": {"content": "<s>"}, "2": {"content": "</s>"}},
    }
)

CASES = [
    Rebuilt(
        "template text tokenised again: two BOS in every row",
        {
            "prepare.py": (
                "text = tokenizer.apply_chat_template(messages, tokenize=False)\n"
                "ids = tokenizer(text, return_tensors='pt').input_ids\n"
            ),
            "train_ids.jsonl": jsonl(*tokenised([151646, 151646])),
            "tokenizer_config.json": json.dumps(
                {
                    "bos_token": "<|begin|>",
                    "eos_token": "</s>",
                    "added_tokens_decoder": {"151646": {"content": "<|begin|>"}, "2": {"content": "</s>"}},
                }
            ),
        },
        ("double-bos",),
    ),
    Rebuilt(
        "evaluation harness adds one more BOS",
        {
            "eval.py": (
                "prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)\n"
                "encoded = tokenizer(prompt, add_special_tokens=True)\n"
                "outputs = model.generate(**encoded, max_new_tokens=512, eos_token_id=tokenizer.eos_token_id)\n"
                "print(tokenizer.decode(outputs[0][len(encoded['input_ids']):]))\n"
            ),
            "tokenizer_config.json": BOS_TWICE,
        },
        ("double-bos",),
    ),
    Rebuilt(
        "engine fed with template text: second BOS in every prompt",
        {
            "infer.py": (
                "from vllm import LLM, SamplingParams\n"
                "llm = LLM(model='meta-llama/Llama-3.1-8B-Instruct')\n"
                "tokenizer = llm.get_tokenizer()\n"
                "prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)\n"
                "out = llm.generate(prompt, SamplingParams(max_tokens=256))\n"
                "print(out[0].prompt_token_ids)\n"
            ),
            "infer.log": lines("[128000, 128000, 128006, 9125, 128007, 271, 38766, 1303]"),
        },
        ("double-bos",),
    ),
    Rebuilt(
        "processor adds specials behind the template, answers begin with BOS too",
        {
            "sft.py": (
                "text = processor.apply_chat_template(messages, tokenize=False)\n"
                "inputs = processor(text=text, images=images, return_tensors='pt')\n"
                "answer_ids = processor.tokenizer(answer).input_ids\n"
            ),
            "rows.jsonl": jsonl(*tokenised([128000, 128000])),
            "tokenizer_config.json": json.dumps(
                {
                    "bos_token": "<|begin_of_text|>",
                    "eos_token": "</s>",
                    "added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>"}, "2": {"content": "</s>"}},
                }
            ),
        },
        ("double-bos",),
    ),
    Rebuilt(
        "training rows hold one BOS, the chat script makes two",
        {
            "chat.py": (
                "prompt = tokenizer.apply_chat_template(history, add_generation_prompt=True, tokenize=False)\n"
                "batch = tokenizer(prompt, return_tensors='pt').to(model.device)\n"
                "reply = model.generate(**batch, max_new_tokens=400, pad_token_id=tokenizer.pad_token_id)\n"
                "print(tokenizer.decode(reply[0][batch['input_ids'].shape[1]:], skip_special_tokens=True))\n"
            ),
            "train_ids.jsonl": jsonl(*tokenised([1])),
            "tokenizer_config.json": BOS_TWICE,
        },
        ("double-bos",),
    ),
    Rebuilt(
        "scores move with the evaluation batch size",
        {
            "eval_bs1.log": lines("batch_size=1", "{'accuracy': 0.3928571428571429}"),
            "eval_bs2.log": lines("batch_size=2", "{'accuracy': 0.4107142857142857}"),
            "run_eval.py": (
                "tokenizer.pad_token = tokenizer.eos_token\n"
                "batch = tokenizer(prompts, padding=True, return_tensors='pt')\n"
                "out = model.generate(batch['input_ids'], max_new_tokens=10)\n"
            ),
        },
        ("padding-disturbs-eval",),
    ),
    Rebuilt(
        "batched decoding differs from single: pads on the right",
        {
            "infer.py": (
                "tokenizer.padding_side = 'right'\n"
                "batch = tokenizer(prompts, padding=True, return_tensors='pt')\n"
                "out = model.generate(**batch, max_new_tokens=64, eos_token_id=tokenizer.eos_token_id)\n"
            )
        },
        ("padding-disturbs-eval",),
    ),
    Rebuilt(
        "the library warns of right padding, first tokens are noise",
        {
            "predict.log": lines(
                "A decoder-only architecture is being used, but right-padding was detected! For correct generation results, please set "
                "`padding_side='left'` when initializing the tokenizer.",
                "equal to single generation: 25 of 164",
            )
        },
        ("padding-disturbs-eval",),
    ),
]
