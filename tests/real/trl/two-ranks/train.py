import json
import os

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="output",
    learning_rate=5e-3,
    per_device_train_batch_size=4,
    num_train_epochs=2,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=10,
    save_steps=10,
    warmup_steps=2,
    lr_scheduler_type="cosine",
    max_length=128,
    assistant_only_loss=True,
    ddp_backend="gloo",
    use_cpu=True,
    bf16=False,
    report_to="none",
)
data = load_dataset("json", data_files={"train": "train.jsonl", "eval": "eval.jsonl"})
class Checked:
    def __init__(self, inner):
        self.inner = inner
        self.calls = 0

    def __call__(self, features):
        self.calls += 1
        if self.calls > 6 and os.environ.get("RANK", "1") == "1":
            raise KeyError("completion")
        return self.inner(features)


trainer = SFTTrainer(model="tiny", args=args, train_dataset=data["train"], eval_dataset=data["eval"])
trainer.data_collator = Checked(trainer.data_collator)
trainer.train()
with open("training_args.json", "w") as file:
    file.write(json.dumps(args.to_dict(), indent=2))
