"""Small files as training runs and servers leave them."""

import json
import struct

import numpy as np
import pytest

from tuneclinic.clinic import diagnose

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Folder:
    """A run folder under construction."""

    def __init__(self, path):
        self.path = path

    def text(self, name, *lines):
        where = self.path / name
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return self

    def json(self, name, value):
        return self.text(name, json.dumps(value, indent=2))

    def rows(self, name, *rows):
        return self.text(name, *(json.dumps(row, ensure_ascii=False) for row in rows))

    def tokenizer(self, template=CHATML, eos="<|im_end|>", ids=None, name="tokenizer_config.json"):
        decoder = {str(number): {"content": text, "special": True} for text, number in (ids or {}).items()}
        return self.json(name, {"eos_token": eos, "chat_template": template, "added_tokens_decoder": decoder})

    def weights(self, name, tensors):
        header, data = {}, b""
        for key, values in tensors.items():
            raw = np.asarray(values, dtype="<f4").tobytes()
            header[key] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        head = json.dumps(header).encode()
        where = self.path / name
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(struct.pack("<Q", len(head)) + head + data)
        return self

    def gguf(self, name, **values):
        """A GGUF header: texts, whole numbers and lists of texts."""
        body = b""
        for key, value in values.items():
            dotted = key.replace("__", ".").encode()
            body += struct.pack("<Q", len(dotted)) + dotted
            if isinstance(value, list):
                body += struct.pack("<IIQ", 9, 8, len(value))
                body += b"".join(struct.pack("<Q", len(item.encode())) + item.encode() for item in value)
            elif isinstance(value, int):
                body += struct.pack("<II", 4, value)
            else:
                body += struct.pack("<IQ", 8, len(value.encode())) + value.encode()
        (self.path / name).write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body)
        return self

    def findings(self):
        """Case → finding of the one run in the folder."""
        (diagnosis,) = diagnose(self.path)
        return {finding.case: finding for finding in diagnosis.findings}

    def verdict(self, case):
        return self.findings()[case].verdict


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)
