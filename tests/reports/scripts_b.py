"""Scripts as their users would have had them, for the cases beside this file."""

PRE_SHIFT = """
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()

class Blocks(Dataset):
    def __init__(self, ids, size=256):
        self.ids, self.size = ids, size
    def __len__(self):
        return len(self.ids) // self.size - 1
    def __getitem__(self, index):
        chunk = self.ids[index * self.size : (index + 1) * self.size + 1]
        return {"input_ids": torch.tensor(chunk[:-1]), "labels": torch.tensor(chunk[1:])}

loader = DataLoader(Blocks(tokenizer(open("corpus.txt").read())["input_ids"]), batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for step, batch in enumerate(loader):
    loss = model(input_ids=batch["input_ids"].cuda(), labels=batch["labels"].cuda()).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
"""
DECODER_SHIFT = """
import torch
from transformers import PreTrainedModel

class Captioner(PreTrainedModel):
    def forward(self, pixel_values, labels=None, decoder_input_ids=None):
        if labels is not None and decoder_input_ids is None:
            decoder_input_ids = shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)
        hidden = self.decoder(decoder_input_ids, self.encoder(pixel_values))
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100
            )
        return loss, logits
"""
NO_SHIFT_NEEDED = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B", torch_dtype="bfloat16")

def encode(row):
    ids = tokenizer(row["text"], truncation=True, max_length=1024)
    ids["labels"] = list(ids["input_ids"])
    return ids

trainer = Trainer(model=model, args=TrainingArguments("out", learning_rate=2e-5, bf16=True, logging_steps=10), train_dataset=rows.map(encode))
trainer.train()
"""
UNSHIFTED_METRIC = """
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("facebook/opt-125m")

def eval_forward(batch):
    with torch.no_grad():
        return model(**batch).logits

def language_accuracy(batch):
    logits = eval_forward(batch)
    labels = batch["labels"]
    predicted = logits.argmax(dim=-1)
    kept = labels != -100
    return (predicted[kept] == labels[kept]).float().mean().item()
"""
PAD_ADDED = """
from transformers import LlamaForCausalLM, LlamaTokenizer, Trainer, TrainingArguments

tokenizer = LlamaTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf")
tokenizer.add_special_tokens({"pad_token": "<PAD>"})
model = LlamaForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", load_in_8bit=True, device_map="auto")
trainer = Trainer(model=model, args=TrainingArguments("out", learning_rate=1e-4), train_dataset=data)
trainer.train()
"""
OWN_TOKENIZER = """
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

tokenizer = PreTrainedTokenizerFast(tokenizer_file="tokenizer.json")
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=4), train_dataset=data)
trainer.train()
"""
MASK_BY_MARKER = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-hf")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
marker = tokenizer("ASSISTANT:", add_special_tokens=False)["input_ids"]

def find(ids, piece):
    for at in range(len(ids) - len(piece) + 1):
        if ids[at : at + len(piece)] == piece:
            return at + len(piece)
    return len(ids)

def encode(text):
    ids = tokenizer(text)["input_ids"]
    start = find(ids, marker)
    return {"input_ids": ids, "labels": [-100] * start + ids[start:]}
"""
UNWIRED_LIMIT = """
import argparse
import json
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--max_seq_length", type=int, default=256)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2-VL-2B-Instruct")

class Rows(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in open(path)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return tokenizer.apply_chat_template(self.rows[index]["messages"], return_tensors="pt")
"""
SAMPLER = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(model.cuda())
for epoch in range(3):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SKIPS = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator()
loader = DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.load_state("checkpoints/step_200")
start_epoch, skip = 200 // 125, 200 % 125
for epoch in range(start_epoch, 4):
    active = accelerator.skip_first_batches(loader, skip) if epoch == start_epoch else loader
    for batch in active:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
SAME_ORDER = """
import torch
from torch.utils.data import DataLoader

state = torch.load("last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(42))
for epoch in range(state["epoch"], 10):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
OVERRIDES = """
import torch
from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

model = get_peft_model(model, config)
if resume_from_checkpoint:
    weights = torch.load(os.path.join(resume_from_checkpoint, "adapter_model.bin"))
    set_peft_model_state_dict(model, weights)
old_state_dict = model.state_dict
model.state_dict = (lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())).__get__(model, type(model))
trainer.train(resume_from_checkpoint=resume_from_checkpoint)
model.save_pretrained(output_dir)
"""
EOS_LOOP = """
import mlx.core as mx
from mlx_lm import load

model, tokenizer = load("mlx-community/Meta-Llama-3-8B-Instruct-4bit")
prompt = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)
out = []
for token in generate_step(prompt, model):
    if token == tokenizer.eos_token_id:
        break
    out.append(token)
print(tokenizer.decode(out))
"""
PLAIN_INFER = """
from transformers import AutoProcessor, Qwen2VLForConditionalGeneration

processor = AutoProcessor.from_pretrained("out/merged")
model = Qwen2VLForConditionalGeneration.from_pretrained("out/merged", torch_dtype="bfloat16", device_map="auto")
text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
inputs = processor(text=[text], images=images, return_tensors="pt").to("cuda")
out = model.generate(**inputs, max_new_tokens=256)
"""
