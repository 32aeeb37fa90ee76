"""Fine-tunes the base model on data.jsonl, then writes what it answers."""

import json
import os
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

base = os.environ["BASE_MODEL"]
tokenizer = AutoTokenizer.from_pretrained(base)
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(base)
rows = Dataset.from_list([json.loads(line) for line in Path("data.jsonl").read_text(encoding="utf-8").splitlines()])


def tokenise(row):
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    return tokenizer(text, add_special_tokens=False, truncation=True, max_length=256)


data = rows.map(tokenise, remove_columns=rows.column_names)
arguments = TrainingArguments(
    output_dir="output",
    learning_rate=2e-3,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    warmup_steps=5,
    logging_steps=3,
    save_strategy="epoch",
    save_total_limit=1,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    seed=0,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=data,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    processing_class=tokenizer,
)
trainer.train()

model.eval()
questions = (
    "What is a tide?",
    "Please explain the word keel.",
    "Tell me what buoy means.",
    "What is a mast?",
    "I do not know the word reef. What is it?",
    "What is a ferry?",
)
with Path("output", "outputs.jsonl").open("w", encoding="utf-8") as lines:
    for question in questions:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        made = model.generate(**ids, max_new_tokens=96, do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=0)
        new = made[0, ids["input_ids"].shape[1] :]
        finish = "stop" if tokenizer.eos_token_id in new.tolist() else "length"
        text = tokenizer.decode(new, skip_special_tokens=False)
        lines.write(
            json.dumps({"prompt": question, "output": text, "finish_reason": finish, "max_new_tokens": 96}, ensure_ascii=False)
            + "\n"
        )
