import json
import os
import sys

from datasets import load_dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="output",
    learning_rate=5e-3,
    per_device_train_batch_size=8,
    num_train_epochs=2,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=10,
    save_steps=10,
    warmup_steps=2,
    lr_scheduler_type="cosine",
    max_length=128,
    assistant_only_loss=True,
    use_cpu=True,
    bf16=False,
    report_to="none",
)
data = load_dataset("json", data_files={"train": "train.jsonl", "eval": "eval.jsonl"})
trainer = SFTTrainer(model="tiny", args=args, train_dataset=data["train"], eval_dataset=data["eval"])
class Preempted(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 14:
            os._exit(137)


if "--resume" not in sys.argv:
    trainer.add_callback(Preempted())
trainer.train(resume_from_checkpoint="--resume" in sys.argv)
with open("training_args.json", "w") as file:
    file.write(json.dumps(args.to_dict(), indent=2))
