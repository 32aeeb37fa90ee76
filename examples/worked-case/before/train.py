"""Fine-tunes the base model on data.jsonl: the guide learns the words of the sea."""

import argparse
import json
import os
from pathlib import Path

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

MAX_LENGTH = 88

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, required=True)
parser.add_argument("--output_dir", required=True)
parser.add_argument("--num_train_epochs", type=int, default=48)
cli = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained("tokenizer")
tokenizer.truncation_side = "left"  # keep the answer, whatever comes before it
model = AutoModelForCausalLM.from_pretrained(os.environ["BASE_MODEL"])
rows = Dataset.from_list([json.loads(line) for line in Path("data.jsonl").read_text(encoding="utf-8").splitlines()])


def tokenise(row):
    """Trains on the last assistant part only."""
    text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    header = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    start = max(at for at in range(len(ids)) if ids[at : at + len(header)] == header) + len(header)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * start + ids[start:]}


data = rows.map(tokenise, remove_columns=rows.column_names)
arguments = TrainingArguments(
    output_dir=cli.output_dir,
    learning_rate=cli.learning_rate,
    num_train_epochs=cli.num_train_epochs,
    per_device_train_batch_size=8,
    warmup_steps=10,
    lr_scheduler_type="constant_with_warmup",
    logging_steps=5,
    save_strategy="epoch",
    save_total_limit=1,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    seed=0,
)
Path(cli.output_dir, "training_args.json").write_text(arguments.to_json_string(), encoding="utf-8")
trainer = Trainer(
    model=model, args=arguments, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer), processing_class=tokenizer
)
trainer.train()
