"""One small whole file for every reader, to be damaged: (name, content)."""

import json
import struct
from pathlib import Path

TESTS = Path(__file__).parents[1]


def _lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _safetensors():
    header = {
        "base_model.model.q_proj.lora_A.weight": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
        "base_model.model.q_proj.lora_B.weight": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [32, 48]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(range(48))


def _gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value

    entries = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"qwen2"),
        text(b"tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, 2),
        text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text(b"a") + text(b"<|im_end|>") + text(b"b"),
        text(b"tokenizer.chat_template")
        + struct.pack("<I", 8)
        + text(b"{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


STATE = {
    "best_metric": None, "global_step": 30, "max_steps": 60, "epoch": 1.5, "num_train_epochs": 3,
    "log_history": [
        *({"epoch": step / 20, "grad_norm": "0.8" if step == 20 else 1.1, "learning_rate": 2e-5, "loss": 2.0 - step / 40, "step": step} for step in range(5, 31, 5)),
        {"epoch": 1.5, "eval_loss": 1.3, "eval_runtime": 2.0, "step": 30},
        {"train_loss": 1.6, "train_runtime": 60.0, "step": 30, "epoch": 1.5},
    ],
}  # fmt: skip

LOG = b"""***** Running training *****
  Num examples = 1,000
  Total optimization steps = 60
{'loss': 2.1, 'grad_norm': 0.8, 'learning_rate': 2e-05, 'epoch': 0.1}
{'loss': '1.9', 'grad_norm': 'nan', 'learning_rate': '1.9e-05', 'epoch': '0.2'}
 17%|#7        | 10/60 [00:10<00:50,  1.0it/s]\r 18%|#8        | 11/60 [00:11<00:49,  1.0it/s]
step: 10  loss:  5.0405  grad_norm:  1.2  memory: 10.1GiB(12.0%)  tps: 1,024
 iteration      100/    1000 | lm loss: 6.1E+00 | loss scale: 65536.0 | grad norm: 1.2 |
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 10, in <module>
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.75 MiB is free.
"""

SCRIPT = b"""import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
RATE = 2e-5
args = TrainingArguments(output_dir="out", learning_rate=RATE, num_train_epochs=3, bf16=True)
def evaluate(model, loader):
    total = 0
    for batch in loader:
        total += model(**batch).loss
    return total
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""

SAMPLES = {
    "trainer_state.json": json.dumps(STATE, indent=1).encode(),
    "trainer_log.jsonl": _lines(*({"current_steps": step, "total_steps": 60, "loss": 2 - step / 50, "lr": 1e-5, "epoch": step / 20, "percentage": step, "elapsed_time": "0:01:00", "remaining_time": "9 days, 21:39:23"} for step in range(5, 40, 5))),
    "logging.jsonl": _lines(*({"loss": 2 - step / 50, "acc": 0.4, "grad_norm": 3.0, "learning_rate": 1e-5, "epoch": step / 20, "global_step/max_steps": f"{step}/60"} for step in range(1, 40, 5)), {"train_runtime": 3, "train_loss": 1.5}),
    "metrics.csv": b"epoch,step,train_loss_step,val_loss\n" + b"".join(b"%d,%d,%.3f,\n" % (step // 10, step, 3 - step / 20) for step in range(30)) + b"3,30,,2.0\n",
    "series.json": json.dumps({"step_kind": "row", "series": {"loss": [[step, 3 - step / 20] for step in range(20)] + [[20, "nan"]]}}).encode(),
    "history.tsv": b"iter\tloss\tlr\n" + b"".join(b"%d\t%.3f\t1e-4\n" % (step, 3 - step / 20) for step in range(20)),
    "all_results.json": json.dumps({"epoch": 3.0, "eval_loss": 1.2, "train_loss": 1.5, "train_runtime": 60.0}).encode(),
    "results_lm_eval.json": json.dumps({"results": {"hellaswag": {"acc,none": 0.4, "acc_norm,none": 0.5}}, "config": {"model": "hf"}}).encode(),
    "generated_predictions.jsonl": _lines(*({"prompt": "Hi", "predict": "Hello <|im_end|>", "label": "Hello"} for _ in range(4))),
    "train.jsonl": _lines(*({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": "a long answer {{name}}"}]} for n in range(6))),
    "alpaca.json": json.dumps([{"instruction": f"do {n}", "input": "", "output": "done"} for n in range(6)]).encode(),
    "train.log": LOG,
    "train.yaml": b"model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: lora\nlora_rank: 8\ntemplate: qwen\ncutoff_len: 2048\nlearning_rate: 1.0e-4\nbf16: true\nbase: &a [1, 2]\nmore: *a\n",
    "axolotl.yml": b"base_model: NousResearch/Llama-3\nadapter: qlora\nload_in_4bit: true\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 2\nlearning_rate: 2e-4\ndatasets:\n  - path: a.jsonl\n    type: chat_template\n",
    "training_args.json": json.dumps({"output_dir": "out", "learning_rate": 2e-5, "num_train_epochs": 3, "per_device_train_batch_size": 4, "bf16": True, "lr_scheduler_type": "cosine"}, indent=1).encode(),
    "ds_config.json": json.dumps({"zero_optimization": {"stage": 3, "overlap_comm": True}, "bf16": {"enabled": "auto"}, "gradient_clipping": 1.0}).encode(),
    "adapter_config.json": json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "x"}).encode(),
    "config.json": json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512, "intermediate_size": 128, "torch_dtype": "bfloat16", "eos_token_id": [1, 2]}).encode(),
    "generation_config.json": json.dumps({"eos_token_id": [1, 2], "pad_token_id": 0, "temperature": 0.7, "do_sample": True}).encode(),
    "tokenizer_config.json": json.dumps({"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>", "model_max_length": 10**30, "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}", "added_tokens_decoder": {"1": {"content": "<|im_end|>", "special": True}}}).encode(),
    "tokenizer.json": json.dumps({"version": "1.0", "added_tokens": [{"id": 1, "content": "<|im_end|>", "special": True}], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}).encode(),
    "chat_template.jinja": b"{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}",
    "run.sh": b"export MAX_PIXELS=1003520\ntorchrun --nproc_per_node 2 train.py --learning_rate 2e-5 \\\n  --num_train_epochs 3 --bf16 True\nvllm serve out --max-model-len 4096 --dtype float16\n",
    "train.py": SCRIPT,
    "requirements.txt": b"torch==2.5.0\ntransformers>=4.46,<4.48\npeft @ git+https://example.invalid/peft\n-e .\n",
    "nvidia-smi.txt": b"| NVIDIA-SMI 550.54  Driver Version: 550.54  CUDA Version: 12.4 |\n|   0  NVIDIA A100-SXM4-80GB  On | 00000000:07:00.0 Off | 0 |\n| N/A 30C P0 60W / 400W | 40000MiB / 81920MiB | 0% Default |\n|    0   N/A  N/A   4711   C   python   39000MiB |\n",
    "Modelfile": b'FROM ./model.gguf\nTEMPLATE """{{ .System }}<|im_start|>user\n{{ .Prompt }}<|im_end|>"""\nPARAMETER stop "<|im_end|>"\nPARAMETER temperature 0\n',
    "docker-compose.yml": b"services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model /m --max-model-len 4096 --dtype half\n",
    "adapter_model.safetensors": _safetensors(),
    "model.gguf": _gguf(),
    "preprocessor_config.json": json.dumps({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 1003520, "patch_size": 14, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5]}).encode(),
    "optimizer.pt": b"PK\x03\x04" + bytes(range(200)),
    "training_args.bin": b"\x80\x02}q\x00.",
    "events.out.tfevents.1700000000.host.0": (TESTS / "readers_metrics/files/events.out.tfevents.1700000000.host.0").read_bytes(),
    "run-offline.wandb": (TESTS / "readers_metrics/files/run-offline.wandb").read_bytes(),
    "mlflow.db": (TESTS / "readers_metrics/files/mlflow.db").read_bytes(),
}  # fmt: skip
