import json

from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="output",
    learning_rate=1e-2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_steps=20,
    logging_steps=1,
    save_steps=20,
    lr_scheduler_type="constant",
    max_length=128,
    use_cpu=True,
    bf16=False,
    report_to="none",
)
peft_config = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
data = load_dataset("json", data_files={"train": "train.jsonl"})
trainer = SFTTrainer(model="tiny", args=args, train_dataset=data["train"], peft_config=peft_config)
trainer.train()
trainer.save_model("output")
with open("training_args.json", "w") as file:
    file.write(json.dumps(args.to_dict(), indent=2))
