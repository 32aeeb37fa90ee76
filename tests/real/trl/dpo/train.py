import json

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

args = DPOConfig(
    output_dir="output",
    learning_rate=1e-3,
    per_device_train_batch_size=8,
    num_train_epochs=2,
    beta=0.1,
    logging_steps=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    max_length=128,
    use_cpu=True,
    bf16=False,
    report_to="none",
)
data = load_dataset("json", data_files={"train": "pairs-train.jsonl", "eval": "pairs-eval.jsonl"})
trainer = DPOTrainer(model="tiny", args=args, train_dataset=data["train"], eval_dataset=data["eval"])
trainer.train()
with open("training_args.json", "w") as file:
    file.write(json.dumps(args.to_dict(), indent=2))
