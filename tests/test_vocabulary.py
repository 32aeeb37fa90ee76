import pytest
import yaml

from tuneclinic.vocabulary import FRAMEWORKS, NAMES, name_of, paste


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_key_is_read_back_as_the_setting_it_is(framework):
    for name, keys in NAMES.items():
        key = keys.key(framework)
        if key:
            assert name_of(key, framework) == name or NAMES[name_of(key, framework)].key(framework) == key


def test_a_pasted_rate_is_a_number_for_yaml():
    line = paste("learning_rate", 2e-05, "llama-factory")
    assert yaml.safe_load(line) == {"learning_rate": 2e-05}


def test_paste_speaks_the_users_framework():
    assert paste("max_length", 2048, "llama-factory") == "cutoff_len: 2048"
    assert paste("max_length", 2048, "axolotl") == "sequence_len: 2048"
    assert paste("max_length", 2048, "trl") == "max_length=2048"
    assert paste("max_length", 2048, "ms-swift") == "--max_length 2048"
    assert paste("neat_packing", True, "axolotl") is None
