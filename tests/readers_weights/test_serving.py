import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers.modelfile import ModelfileReader
from tuneclinic.probes.readers.serve_commands import ServeCommandsReader
from tuneclinic.probes.reading import SourceFile

MODELFILE = '''# a comment
FROM ./tuned-q4.gguf
ADAPTER ./lora
TEMPLATE """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
SYSTEM "You help"
PARAMETER stop "<|im_end|>"
PARAMETER stop <|endoftext|>
PARAMETER temperature 0.7
PARAMETER num_ctx 4096
PARAMETER repeat_penalty 1.1
PARAMETER num_predict 256
'''


def source(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
    return SourceFile(folder / name, name)


def serving(folder, name, text):
    file = source(folder, name, text)
    assert ServeCommandsReader().claims(file) > 0.3
    return ServeCommandsReader().read(file)[0].evidence.serving


def test_modelfile(tmp_path):
    file = source(tmp_path, "Modelfile", MODELFILE)
    assert ModelfileReader().claims(file) == 1
    (reading,) = ModelfileReader().read(file)
    found = reading.evidence.serving
    assert (found.engine, found.model, found.adapter, found.context) == ("ollama", "./tuned-q4.gguf", "./lora", 4096)
    assert found.stops == ("<|im_end|>", "<|endoftext|>")
    assert found.template == "{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"
    assert found.sampling == {"temperature": 0.7, "repetition_penalty": 1.1, "max_tokens": 256}
    assert found.places["template"] == "Modelfile:4"
    assert reading.understood == {"instructions": 10}


def test_modelfile_without_template(tmp_path):
    (reading,) = ModelfileReader().read(source(tmp_path, "Modelfile", "FROM llama3\n"))
    assert reading.evidence.serving.template is None
    assert reading.evidence.serving.stops == ()


def test_no_modelfile(tmp_path):
    (reading,) = ModelfileReader().read(source(tmp_path, "Modelfile", "hello\n"))
    assert reading.understood == {}
    assert reading.note


def test_vllm_shell(tmp_path):
    found = serving(
        tmp_path,
        "serve.sh",
        "#!/bin/bash\nMODEL=/m/qwen\nexport MAX_PIXELS=1003520\nCUDA_VISIBLE_DEVICES=0 vllm serve $MODEL \\\n  --enable-lora --lora-modules med=/out/checkpoint-500 \\\n"
        '  --max-model-len 8k --dtype=float16 --chat-template ./t.jinja \\\n  --override-generation-config \'{"temperature": 0.2, "top_p": 0.9}\'\n',
    )
    assert (found.engine, found.model, found.adapter, found.context) == ("vllm", "/m/qwen", "/out/checkpoint-500", 8192)
    assert (found.dtype, found.template, found.sampling) == ("float16", "./t.jinja", {"temperature": 0.2, "top_p": 0.9})
    assert found.image == {"max_pixels": 1003520}
    assert found.places["dtype"] == "serve.sh:6"


@pytest.mark.parametrize(
    ("line", "engine", "model"),
    [
        ("python -m vllm.entrypoints.openai.api_server --model /m/a --quantization awq", "vllm", "/m/a"),
        ("python3 -m sglang.launch_server --model-path /m/a --context-length 4096", "sglang", "/m/a"),
        ("./llama-server -m a.gguf -c 4096 --temp 0.1", "llama.cpp", "a.gguf"),
        ("lmdeploy serve api_server /m/a --session-len 4096", "lmdeploy", None),
        ("text-generation-launcher --model-id /m/a --quantize bitsandbytes", "tgi", "/m/a"),
        ("transformers serve --dtype bfloat16", "transformers", None),
        ("swift deploy --adapters out/checkpoint-100 --max_length 4096", "ms-swift", None),
    ],
)
def test_engines(tmp_path, line, engine, model):
    found = serving(tmp_path, "run.sh", f"set -e\n{line}\n")
    assert found.engine == engine
    if model:
        assert found.model == model


COMPOSE = """
services:
  web:
    image: nginx
    command: nginx -g 'daemon off;'
  llm:
    image: vllm/vllm-openai:v0.6.3
    environment:
      - MAX_PIXELS=501760
    command: >
      --model /models/qwen
      --max-model-len 4096
      --quantization awq
"""
MANIFEST = """
apiVersion: apps/v1
spec:
  template:
    spec:
      containers:
        - name: llm
          image: my/own:1
          command: ["vllm", "serve", "/models/a"]
          args: ["--dtype", "half", "--lora-modules", "x=/l"]
          env:
            - name: MIN_PIXELS
              value: "3136"
"""


def test_compose(tmp_path):
    found = serving(tmp_path, "docker-compose.yml", COMPOSE)
    assert (found.engine, found.model, found.context, found.quantization) == ("vllm", "/models/qwen", 4096, "awq")
    assert found.image == {"max_pixels": 501760}


def test_manifest(tmp_path):
    found = serving(tmp_path, "deploy.yaml", MANIFEST)
    assert (found.engine, found.model, found.dtype, found.adapter) == ("vllm", "/models/a", "half", "/l")
    assert found.image == {"min_pixels": 3136}


@pytest.mark.parametrize(
    "text",
    [
        "swift sft --model a --learning_rate 1e-4\n",
        "# vllm serve is nice\npython train.py\n",
        "use_vllm: true\nvllm_mode: colocate\n",
    ],
)
def test_training_scripts_are_no_servers(tmp_path, text):
    for name in ("a.sh", "a.yaml"):
        file = source(tmp_path, name, text)
        if ServeCommandsReader().claims(file) > 0.3:
            (reading,) = ServeCommandsReader().read(file)
            assert reading.evidence.serving is None


@pytest.mark.corpus
def test_training_configurations_serve_nothing(corpus):
    for path in sorted([*corpus.glob("configs/*.sh"), *corpus.glob("configs/*.y*ml")]):
        file = SourceFile(path, path.name)
        if ServeCommandsReader().claims(file) > 0.3:
            assert ServeCommandsReader().read(file)[0].evidence.serving is None, path.name


TOKENS = st.sampled_from(
    [
        "vllm serve ",
        "--model ",
        "--",
        "=",
        "'",
        '"',
        "\\\n",
        "\n",
        "image: vllm/",
        "command: ",
        "- ",
        "&a [*a]",
        "{",
        "}",
        "$X",
        "llama-server ",
        "PARAMETER ",
        'TEMPLATE """',
        "FROM ",
        "\x00",
        "args: ",
        ": ",
        "  ",
    ]
)


@settings(max_examples=250, deadline=None)
@given(st.lists(st.one_of(TOKENS, st.text(max_size=8)), max_size=40).map("".join))
def test_any_text(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    for name, reader in (("f.sh", ServeCommandsReader()), ("f.yml", ServeCommandsReader()), ("Modelfile", ModelfileReader())):
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        file = SourceFile(folder / name, name)
        assert 0 <= reader.claims(file) <= 1
        (reading,) = reader.read(file)
        assert reading.understood or reading.note
