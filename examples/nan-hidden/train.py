"""Fine-tunes the base model on data.jsonl."""

import json
import os
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

base = os.environ["BASE_MODEL"]
tokenizer = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(base)
rows = Dataset.from_list([json.loads(line) for line in Path("data.jsonl").read_text(encoding="utf-8").splitlines()])


def tokenise(row):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    start = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * start + ids[start:]}


data = rows.map(tokenise, remove_columns=rows.column_names)
arguments = TrainingArguments(
    output_dir="output",
    learning_rate=50.0,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    max_grad_norm=0.0,
    optim="sgd",
    lr_scheduler_type="constant",
    logging_steps=1,
    save_strategy="epoch",
    save_total_limit=1,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    seed=0,
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer), processing_class=tokenizer
)
trainer.train()
