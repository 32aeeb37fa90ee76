import os
import pickle
import random
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers.pickled import PickledReader, form_of
from tuneclinic.probes.reading import SourceFile


class Bomb:
    def __reduce__(self):
        return os.mkdir, (Bomb.target,)


def file(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return SourceFile(path, name)


def torch_archive(path, sizes):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
        for number, size in enumerate(sizes):
            archive.writestr(f"archive/data/{number}", bytes(size))


def test_a_pickle_is_never_loaded(tmp_path):
    Bomb.target = str(tmp_path / "executed")
    source = file(tmp_path, "training_args.bin", pickle.dumps(Bomb()))
    assert PickledReader().claims(source) == 1
    (reading,) = PickledReader().read(source)
    (held,) = reading.evidence.weights.files
    assert not (tmp_path / "executed").exists()
    assert (held.form, held.unread, held.values_read, held.size) == ("arguments", "pickle", False, source.size)
    assert reading.understood == {}
    assert "runs code" in reading.note.en


def test_the_directory_of_a_torch_archive(tmp_path):
    path = tmp_path / "checkpoint-70" / "adapter_model.bin"
    path.parent.mkdir()
    torch_archive(path, [16, 0, 32])
    (reading,) = PickledReader().read(SourceFile(path, "checkpoint-70/adapter_model.bin"))
    (held,) = reading.evidence.weights.files
    assert (held.tensors, held.empty, held.step, held.form) == (3, ("archive/data/1",), 70, "pickle")
    assert held.metadata == {"stored_bytes": "48"}
    assert held.adapter
    assert reading.understood == {"archive entries": 4}


@pytest.mark.parametrize(
    ("name", "form"),
    [("optimizer.pt", "optimizer"), ("scheduler.pt", "scheduler"), ("rng_state_0.pth", "rng"), ("random_states_0.pkl", "rng"), ("pytorch_model.bin", "pickle"), ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "optimizer"), ("scaler.pt", "scaler")],
)  # fmt: skip
def test_forms(name, form):
    assert form_of(name) == form


def test_text_is_left_to_others(tmp_path):
    assert PickledReader().claims(file(tmp_path, "a.bin", b"loss 1.0\n" * 100)) < 0.3
    assert PickledReader().claims(file(tmp_path, "a.log", b"\x80\x02")) == 0


def test_a_directory_that_lies_about_its_size(tmp_path):
    path = tmp_path / "model.bin"
    torch_archive(path, [4])
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x05\x06")
    content[at + 12 : at + 16] = b"\xf0\xff\xff\xff"
    (reading,) = PickledReader().read(file(tmp_path, "model.bin", bytes(content)))
    assert reading.understood == {}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.booleans())
def test_mutated(tmp_path_factory, seed, changes, cut):
    folder = tmp_path_factory.getbasetemp()
    torch_archive(folder / "fuzz.pt", [8, 0, 3])
    chance = random.Random(seed)
    content = bytearray((folder / "fuzz.pt").read_bytes())
    for _ in range(changes):
        content[chance.randrange(len(content))] = chance.randrange(256)
    source = file(folder, "fuzz.pt", bytes(content[: chance.randrange(len(content))] if cut else content))
    assert 0 <= PickledReader().claims(source) <= 1
    assert PickledReader().read(source)[0].note
