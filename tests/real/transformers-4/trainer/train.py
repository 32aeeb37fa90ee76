import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
rows = [{"input_ids": (torch.arange(24) * step + start) % 97, "labels": (torch.arange(24) * step + start) % 97} for step in range(1, 9) for start in range(20)]
model = LlamaForCausalLM(LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4))
training_args = TrainingArguments(
    output_dir="output",
    learning_rate=3e-3,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    num_train_epochs=3,
    logging_steps=2,
    evaluation_strategy="epoch",
    save_strategy="epoch",
    warmup_ratio=0.1,
    use_cpu=True,
    report_to=[],
)
trainer = Trainer(model=model, args=training_args, train_dataset=rows[::2] + rows[1::4], eval_dataset=rows[3::4])
trainer.train()
trainer.save_state()
