import json

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def digits(completions, **kwargs):
    texts = [completion[0]["content"] for completion in completions]
    return [sum(letter.isdigit() for letter in text) / max(len(text), 1) for text in texts]


args = GRPOConfig(
    output_dir="output",
    learning_rate=1e-3,
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=16,
    max_steps=15,
    beta=0.04,
    logging_steps=1,
    save_steps=15,
    use_cpu=True,
    bf16=False,
    report_to="none",
)
data = load_dataset("json", data_files={"train": "pairs-train.jsonl"})["train"].select_columns(["prompt"])
trainer = GRPOTrainer(model="tiny", args=args, reward_funcs=digits, train_dataset=data)
trainer.train()
with open("training_args.json", "w") as file:
    file.write(json.dumps(args.to_dict(), indent=2))
