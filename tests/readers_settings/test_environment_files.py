"""Package lists and nvidia-smi."""

FREEZE = """\
torch==2.5.1+cu124
Transformers==4.46.0  # pinned
flash_attn @ https://example.org/flash_attn-2.6.3+cu12torch2.5-cp311-cp311-linux_x86_64.whl
ruamel.yaml==0.18.6
-e git+https://example.org/x.git#egg=x
peft>=0.10
datasets
trl[peft] == 0.12.0 ; python_version > "3.8"
"""


def test_pip_freeze(read):
    reading = read(FREEZE, "pip_freeze.txt")
    packages = reading.evidence.environment.packages
    assert packages == {
        "torch": "2.5.1+cu124",
        "transformers": "4.46.0",
        "flash-attn": "2.6.3+cu12torch2.5",
        "ruamel-yaml": "0.18.6",
        "trl": "0.12.0",
    }
    assert reading.evidence.environment.places["transformers"] == "pip_freeze.txt:2"
    assert reading.skipped["packages without an exact version"] == 2


def test_ranges_alone_are_not_versions(read):
    reading = read("transformers>=4.40\ntorch\n", "requirements.txt")
    assert not reading.understood
    assert reading.note


def test_pip_list_table_under_any_name(read):
    text = "Package            Version\n------------------ -----------\ntorch              2.1.0\ntransformers       4.38.1   /home/me/src\npeft               0.9.0\n"
    assert read(text, "versions.txt").evidence.environment.packages["transformers"] == "4.38.1"


def test_conda_environment_and_lock_files(read):
    text = "name: ft\ndependencies:\n  - python=3.10.13\n  - pytorch::pytorch=2.1.0=py3.10_cuda12.1\n  - pip:\n    - transformers==4.38.0\n"
    environment = read(text, "environment.yml").evidence.environment
    assert environment.python == "3.10.13"
    assert environment.packages == {"pytorch": "2.1.0", "transformers": "4.38.0"}
    lock = '[[package]]\nname = "trl"\nversion = "0.12.0"\nsource = { registry = "x" }\n\n[[package]]\nname = "peft"\nversion = "0.13.2"\n'
    assert read(lock, "uv.lock").evidence.environment.packages == {"trl": "0.12.0", "peft": "0.13.2"}


SMI = """\
Mon Jan  5 10:11:12 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   34C    P0             65W /  400W |   61440MiB /  81920MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                    0 |
| N/A   34C    P0             65W /  400W |       4MiB /  81920MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|    0   N/A  N/A     41234      C   .../envs/serve/bin/python                   61420MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_nvidia_smi(read):
    environment = read(SMI, "nvidia-smi.txt").evidence.environment
    assert (environment.driver, environment.cuda) == ("550.54.15", "12.4")
    assert environment.gpus == ("NVIDIA A100-SXM4-80GB",) * 2
    assert (environment.gpu_memory, environment.gpu_memory_used) == (80.0, 60.0)
    assert environment.gpu_processes == (".../envs/serve/bin/python (61420 MiB, GPU 0)",)
    assert environment.processes is None
    assert environment.places["gpu_memory"] == "nvidia-smi.txt:6"
