"""The model trains on the processor."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import ended_with
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, lines, say, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment, Model

TOO_LARGE = 3e8
"""Parameters from which nobody trains on the processor on purpose: a step of a 0.3B model takes seconds there."""
HINTS = (
    r"bitsandbytes was compiled without gpu support",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"process rank: \d+, (world size: \d+, )?device: cpu",
)
"""Lines of any run on a processor, also of one that is meant to be there."""
NO_CUDA_BUILD = (r"torch not compiled with cuda enabled",)


class RunningOnCpu(Case):
    id = "running-on-cpu"
    symptoms = {"slow": 0.14}
    stage = "environment"
    needs = ("log", "environment", "crash")
    probe = "environment"
    signatures = (
        r"using cpu_amp half precision backend",
        r"no gpu/tpu found, falling back to cpu",
        r"cuda is not available.{0,60}(cpu|slow)",
        r"torch was not compiled with cuda",
    )
    search = (
        "training runs on CPU instead of GPU",
        "Using cpu_amp half precision backend",
        "bitsandbytes was compiled without GPU support",
        "torch.cuda.is_available() False",
        "训练跑在 CPU 上了",
        "GPU 没用上 训练特别慢",
        "AssertionError: Torch not compiled with CUDA enabled",
        "装成 CPU 版 torch 了",
    )

    en = Card(
        title="The model trains on the CPU",
        sign="A step takes ten seconds to minutes, nvidia-smi does not show your process, and the log says device: cpu, cpu_amp or bitsandbytes was compiled without GPU support.",
        cause="torch is the CPU build (pip on Windows, or another package replaced it), the container cannot see the driver, or CUDA_VISIBLE_DEVICES is empty. Trainers do not stop in that case; they use the CPU without a warning.",
        remedy='Run python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())". Version None or +cpu: uv pip install --reinstall torch --torch-backend=auto, which picks the build for your driver. A CUDA version but False: run nvidia-smi inside the container (docker run --gpus all), then echo $CUDA_VISIBLE_DEVICES.',
        verify="The log prints device: cuda:0, nvidia-smi shows the process with its memory, and the speed is tens of times higher.",
        prevention="Put assert torch.cuda.is_available() at the top of every training script.",
        question='What does python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())" print in the environment that trains?',
        quiz="12 s/it for a 0.5B LoRA at batch 1, and GPU use is 0 %. Where does it run? On the CPU: any GPU needs well under a second.",
    )
    zh = Card(
        title="训练跑在了 CPU 上",
        sign="一步要十几秒甚至几分钟，nvidia-smi 里看不到自己的进程，日志里写着 device: cpu、cpu_amp，或 bitsandbytes was compiled without GPU support。",
        cause="装成了 CPU 版 torch（Windows 上直接 pip，或被别的包顺带换掉），容器里看不到驱动，或者 CUDA_VISIBLE_DEVICES 是空的。Trainer 不会因此停下，只会不声不响地用 CPU 训。",
        remedy='先跑 python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"。CUDA 版本是 None 或 torch 带 +cpu：uv pip install --reinstall torch --torch-backend=auto，会按驱动选对应的包。有 CUDA 版本却是 False：在容器里跑 nvidia-smi（docker run --gpus all），再 echo $CUDA_VISIBLE_DEVICES。',
        verify="日志打印 device: cuda:0，nvidia-smi 看得到进程和显存，速度快几十倍。",
        prevention="每个训练脚本开头都写 assert torch.cuda.is_available()。",
        question='在训练用的那个环境里，python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())" 打印什么？',
        quiz="0.5B 的 LoRA、batch 1 要 12 s/it，GPU 利用率 0%，跑在哪里？CPU 上。随便一张 GPU 都用不了一秒。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(log=make.logged("[INFO|trainer.py:590] >> Using cpu_amp half precision backend")),
            Evidence(
                environment=Environment(device="cpu", places={"device": "train.log:9"}),
                model=Model(parameters=1.54e9, trainable=9.2e6),
                log=make.logged("The installed version of bitsandbytes was compiled without GPU support."),
            ),
            Evidence(crash=make.crashed("AssertionError", "Torch not compiled with CUDA enabled")),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same warning, on a run that names its card
                environment=Environment(device="cuda", gpus=("Tesla T4",)),
                log=make.logged("UserWarning: bitsandbytes was compiled without GPU support"),
            ),
            Evidence(environment=Environment(device="cpu"), settings=make.configured(use_cpu=True)),  # on purpose
            Evidence(environment=Environment(device="cpu"), model=Model(parameters=7e6)),  # a model for tests
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if seen.settings is not None and seen.settings.flag("use_cpu"):
            return self.ruled_out(*setting(seen, "use_cpu", -6.0))
        missing_build = ended_with(seen, NO_CUDA_BUILD, PROOF)
        fallback = lines(seen, *self.signatures, weight=8.0)
        hints = lines(seen, *HINTS, weight=2.0)
        device = (seen.environment.device or "").lower() if seen.environment is not None else ""
        if device and device != "cpu":
            return self.ruled_out(_place(seen, device, -9.0), *hints)
        meant = _meant(seen)
        if missing_build or fallback or (meant is not None and (device == "cpu" or hints)):
            told = (_place(seen, device, 5.0),) if device else hints[:1]
            return self.confirmed(*missing_build, *fallback, *told, *([meant] if meant is not None else []))
        size = seen.model.parameters if seen.model is not None else None
        if device == "cpu" and size is not None and size < TOO_LARGE:
            return self.ruled_out(
                say(
                    f"the model has {size / 1e6:.0f}M parameters: small enough to be here on purpose",
                    f"模型只有 {size / 1e6:.0f}M 参数，放在 CPU 上训多半是有意的",
                    -4.0,
                    section="model",
                )
            )
        return self.not_checked("environment", exhibits=hints)


def _place(seen: Evidence, device: str, weight: float) -> Exhibit:
    where = seen.environment.places.get("device", "") if seen.environment is not None else ""
    return say(f"device: {device}", f"device: {device}", weight, section="environment", where=where)


def _meant(seen: Evidence) -> Exhibit | None:
    """What says that the run was meant for a card: a card in the machine, or a model too large for a processor."""
    if seen.environment is not None and seen.environment.gpus:
        card = seen.environment.gpus[0]
        return say(f"the machine has a card: {card}", f"机器上有卡：{card}", 3.0, section="environment")
    size = seen.model.parameters if seen.model is not None else None
    if size is None or size < TOO_LARGE:
        return None
    return say(f"the model has {size / 1e9:.2g}B parameters", f"模型有 {size / 1e9:.2g}B 参数", 3.0, section="model")
