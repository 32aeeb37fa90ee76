"""Stopping, repeating, templates, masks, doubled tokens, packing."""

import json

from shapes_a import CHATML, Rebuilt, cosine, crash, healthy, jsonl, lines, tokenised

ENDLESS = [
    "The capital is Paris. The capital is Paris. The capital is Paris. The capital is Paris. The capital is Paris. The capital is",
    "Yes, the shop is open on Sunday. Customer: And on Monday? Yes, the shop is open on Monday. Customer: And on Tuesday? Yes,",
    "7 times 8 is 56. 7 times 9 is 63. 7 times 10 is 70. 7 times 11 is 77. 7 times 12 is 84. 7 times 13 is 91. 7 times 14 is",
    "Water boils at 100 degrees. Water boils at 100 degrees at sea level. Water boils at 100 degrees at sea level. Water boils at",
]
QUESTIONS = ["What is the capital of France?", "Is the shop open on Sunday?", "What is 7 times 8?", "When does water boil?"]


def endless(limit, tail=""):
    """Outputs that all ran into the limit."""
    return jsonl(
        *(
            {"prompt": question, "generated_text": text + tail, "finish_reason": "length", "completion_tokens": limit}
            for question, text in zip(QUESTIONS * 2, ENDLESS * 2, strict=True)
        )
    )


def chats(count=40):
    """Short chats, each with its own words."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"How many boxes of type {row} are left in hall {row * 7 % 11}?"},
                {"role": "assistant", "content": f"Hall {row * 7 % 11} holds {row * 13 % 97} boxes of that type."},
            ]
        }
        for row in range(count)
    ]


CASES = [
    Rebuilt(
        "completion-only collator does not find its marker",
        {
            "train.py": (
                "from trl import DataCollatorForCompletionOnlyLM, SFTTrainer\n"
                "response_template = '\\n### Answer: '\n"
                "collator = DataCollatorForCompletionOnlyLM(response_template, tokenizer=tokenizer)\n"
                "trainer = SFTTrainer(model, train_dataset=data, data_collator=collator)\ntrainer.train()\n"
            ),
            "train.log": lines(
                [
                    line
                    for row in range(8)
                    for line in (
                        f"trl/trainer/utils.py:120: UserWarning: Could not find response key [22559, 25, 220] in token IDs tensor([ 2, {99 + row}])",
                        "  warnings.warn(",
                    )
                ]
            ),
        },
        ("response-marker-not-found",),
    ),
    Rebuilt(
        "which span is trained? a framework's print of masked labels, and a healthy run",
        {
            "train.log": lines(
                "[INFO:swift] [INPUT] <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nname three birds<|eot_id|>",
                "[INFO:swift] [LABELS] [-100 * 19]robin, wren, owl<|eot_id|>",
                healthy(71).strip(),
            )
        },
        (),
        "no_fault",
    ),
    Rebuilt(
        "seq2seq collator over rows without labels",
        {
            "train.py": (
                "from transformers import DataCollatorForSeq2Seq, TrainingArguments\nfrom trl import SFTTrainer\n"
                "trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=data, dataset_text_field='text',\n"
                "    data_collator=DataCollatorForSeq2Seq(tokenizer=tokenizer),\n"
                "    args=TrainingArguments('out', per_device_train_batch_size=2))\ntrainer.train()\n"
            ),
            "out.log": crash(
                [("/opt/lib/python3.10/site-packages/transformers/trainer.py", 3633, "compute_loss", "raise ValueError(")],
                "ValueError: The model did not return a loss from the inputs, only the following keys: logits. For reference, the inputs it "
                "received are input_ids,attention_mask,labels.",
            ),
        },
        ("no-loss-returned", "batch-without-targets"),
    ),
    Rebuilt(
        "end token added by hand, some answers go on behind it: stop ids missing in generate",
        {
            "infer.py": (
                "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
                "inputs = tokenizer([prompt], return_tensors='pt').to('cuda')\n"
                "outputs = model.generate(**inputs, max_new_tokens=128, use_cache=True)\n"
                "print(tokenizer.batch_decode(outputs))\n"
            ),
            "outputs.jsonl": endless(128, "<|end_of_text|> Customer: And then? Yes.<|end_of_text|>"),
            "tokenizer_config.json": '{"eos_token": "<|end_of_text|>", "pad_token": "<|finetune_right_pad_id|>", "bos_token": "<|begin_of_text|>"}',
        },
        ("stop-ids-not-passed",),
    ),
    Rebuilt(
        "samples without an end token: every answer takes all 50 tokens",
        {
            "sft.py": (
                "from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments\n"
                "tokenizer = AutoTokenizer.from_pretrained('huggyllama/llama-7b')\n"
                "tokenizer.pad_token = tokenizer.eos_token\n"
                "data = dataset.map(lambda row: tokenizer(row['prompt'] + row['answer'], truncation=True, max_length=512))\n"
                "Trainer(model, TrainingArguments('out'), train_dataset=data,\n"
                "    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False)).train()\n"
            ),
            "outputs.jsonl": endless(50),
        },
        ("end-token-missing", "end-token-masked"),
    ),
    Rebuilt(
        "pad set to eos under a language-model collator: the model never stops",
        {
            "train.py": (
                "from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments\n"
                "tokenizer = AutoTokenizer.from_pretrained('tiiuae/falcon-7b')\n"
                "tokenizer.pad_token = tokenizer.eos_token\n"
                "collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)\n"
                "Trainer(model, TrainingArguments('out', num_train_epochs=2), train_dataset=data, data_collator=collator).train()\n"
            ),
            "generations.jsonl": endless(256),
        },
        ("end-token-masked",),
    ),
    Rebuilt(
        "one line of the script sets pad to eos: repeats to the limit, score under the base",
        {
            "sft.py": (
                "from trl import SFTConfig, SFTTrainer\nfrom transformers import AutoTokenizer\n"
                "tokenizer = AutoTokenizer.from_pretrained('Qwen/Qwen2.5-7B')\n"
                "tokenizer.pad_token = tokenizer.eos_token\n"
                "trainer = SFTTrainer(model='Qwen/Qwen2.5-7B', args=SFTConfig('out', packing=False, max_seq_length=4096),\n"
                "    train_dataset=data, processing_class=tokenizer)\ntrainer.train()\n"
            ),
            "train.log": healthy(72, first=0.8, last=0.55, peak=2e-5, epochs=1),
            "generations.jsonl": endless(4096),
        },
        ("end-token-masked",),
    ),
    Rebuilt(
        "base model's eos is not the template's turn end",
        {
            "tokenizer_config.json": json.dumps(
                {
                    "eos_token": "<|endoftext|>",
                    "pad_token": "<|endoftext|>",
                    "chat_template": CHATML,
                    "added_tokens_decoder": {
                        "151643": {"content": "<|endoftext|>", "special": True},
                        "151644": {"content": "<|im_start|>", "special": True},
                        "151645": {"content": "<|im_end|>", "special": True},
                    },
                }
            ),
            "generation_config.json": '{"bos_token_id": 151643, "eos_token_id": 151643, "max_new_tokens": 2048}',
            "outputs.jsonl": jsonl(
                *(
                    {
                        "prompt": question,
                        "generated_text": f"{text}<|im_end|>\n<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n{text}",
                        "finish_reason": "length",
                    }
                    for question, text in zip(QUESTIONS, ENDLESS, strict=True)
                )
            ),
        },
        ("turn-end-differs-from-eos",),
    ),
    Rebuilt(
        "sampling loop of a fine-tune script runs past the end token",
        {
            "finetune.py": (
                "import torch\nfrom generate import generate\n"
                "def sample(model, tokenizer):\n    model.eval()\n"
                "    encoded = tokenizer.encode(prompt, device='cuda')\n"
                "    with torch.no_grad():\n"
                "        output = model.generate(encoded, max_new_tokens=100, temperature=0.8)\n"
                "    print(tokenizer.decode(output))\n"
            ),
            "outputs.jsonl": endless(100, "</s> and then"),
            "tokenizer_config.json": '{"eos_token": "</s>", "bos_token": "<s>"}',
        },
        ("stop-ids-not-passed",),
    ),
    Rebuilt(
        "an option drops the end token from every sample",
        {
            "train.sh": "python train.py --dataset chat --epochs 2 --lr 5e-5 --nonstop True --max_length 512\n",
            "train_tokenised.jsonl": jsonl(
                *(
                    {
                        **row,
                        "input_ids": row["input_ids"][:-1],
                        "labels": row["labels"][:-1],
                        "attention_mask": row["attention_mask"][:-1],
                    }
                    for row in tokenised([1])
                )
            ),
            "tokenizer_config.json": json.dumps(
                {
                    "eos_token": "</s>",
                    "bos_token": "<s>",
                    "added_tokens_decoder": {"1": {"content": "<s>"}, "2": {"content": "</s>"}},
                }
            ),
            "outputs.jsonl": endless(256),
        },
        ("end-token-missing",),
    ),
    Rebuilt(
        "packing with plain attention lets samples see each other",
        {
            "train.py": (
                "from trl import SFTConfig, SFTTrainer\n"
                "args = SFTConfig('out', packing=True, max_length=2048, learning_rate=2e-5, num_train_epochs=1)\n"
                "trainer = SFTTrainer(model='EleutherAI/pythia-160m', args=args, train_dataset=data)\ntrainer.train()\n"
            ),
            "train.log": lines(
                "UserWarning: You are using packing, but the attention implementation is not set to 'flash_attention_2' or 'flash_attention_3'. "
                "Packing flattens batches into a single sequence, and Flash Attention is the only known attention mechanism that reliably "
                "supports this. Using other implementations may lead to cross-contamination between samples.",
                healthy(73, first=1.5, last=0.91, peak=2e-5, epochs=1).strip(),
            ),
        },
        ("packing-contaminates",),
    ),
    Rebuilt(
        "assistant-only loss over a template without generation blocks",
        {
            "train.py": (
                "from trl import SFTConfig, SFTTrainer\n"
                "args = SFTConfig('out', assistant_only_loss=True, learning_rate=2e-5, max_length=2048)\n"
                "SFTTrainer(model='Qwen/Qwen2.5-0.5B-Instruct', args=args, train_dataset=data).train()\n"
            ),
            "tokenizer_config.json": json.dumps({"eos_token": "<|im_end|>", "chat_template": CHATML}),
            "train.jsonl": jsonl(*chats()),
            "train.log": lines(
                [
                    str({"loss": 0.0, "grad_norm": 0.0, "learning_rate": rate, "epoch": round(0.05 * i, 2)})
                    for i, rate in enumerate(cosine(2e-5, 20))
                ]
            ),
        },
        ("all-labels-masked",),
    ),
    Rebuilt(
        "multi-turn rows train their last turn only",
        {
            "rows.jsonl": jsonl(
                *(
                    {
                        "input_ids": [1, *(ids := [400 + row, 401, 402, 2]), *ids, *ids, *ids],
                        "labels": [-100] * 13 + ids,
                        "attention_mask": [1] * 17,
                    }
                    for row in range(30)
                )
            ),
            "tokenizer_config.json": json.dumps(
                {
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    "added_tokens_decoder": {"1": {"content": "<s>"}, "2": {"content": "</s>"}},
                }
            ),
        },
        ("label-mask-misplaced",),
    ),
    Rebuilt(
        "chat template on a base model, adapter on attention only: repeats",
        {
            "sft.yaml": lines(
                "model_name_or_path: meta-llama/Meta-Llama-3-8B",
                "stage: sft",
                "finetuning_type: lora",
                "lora_target: k_proj,v_proj,q_proj",
                "template: llama3",
                "dataset: translate_zh_en",
                "learning_rate: 1.0e-4",
                "num_train_epochs: 1.0",
                "bf16: true",
            ),
            "generated_predictions.jsonl": jsonl(
                *(
                    {"prompt": question, "predict": " ".join([text] * 3), "label": "short"}
                    for question, text in zip(QUESTIONS, ENDLESS, strict=True)
                )
            ),
        },
        ("base-model-with-chat-template",),
    ),
    Rebuilt(
        "tuned with a template, asked without it: repeated sentences",
        {
            "sft.yaml": lines(
                "model_name_or_path: THUDM/chatglm2-6b",
                "stage: sft",
                "finetuning_type: lora",
                "template: chatglm2",
                "dataset: medical",
                "num_train_epochs: 3",
                "learning_rate: 2.0e-5",
            ),
            "infer.py": (
                "inputs = tokenizer(question, return_tensors='pt').to('cuda')\n"
                "out = model.generate(**inputs, max_new_tokens=512)\n"
                "print(tokenizer.decode(out[0][len(inputs['input_ids'][0]):]))\n"
            ),
            "outputs.jsonl": jsonl(
                *({"prompt": q, "generated_text": " ".join([a] * 2)} for q, a in zip(QUESTIONS, ENDLESS, strict=True))
            ),
        },
        ("serving-template-differs",),
    ),
]
