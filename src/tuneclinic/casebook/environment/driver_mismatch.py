"""Driver, CUDA build and card do not fit together."""

from __future__ import annotations

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import ended_with, other_end, trained
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment
from tuneclinic.versions import wheel_cuda

LOWEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The lowest driver branch for each CUDA major version (NVIDIA, CUDA compatibility guide, minor version compatibility)."""


class DriverMismatch(Case):
    id = "driver-mismatch"
    symptoms = {"crashes": 0.04}
    stage = "environment"
    needs = ("crash", "log", "environment")
    probe = "environment"
    explains = ("running-on-cpu",)
    signatures = (
        r"nvidia driver on your system is too old",
        r"cuda driver version is insufficient for cuda runtime version",
        r"no kernel image is available for execution on the device",
        r"is not compatible with the current pytorch installation",
        r"provided ptx was compiled with an unsupported toolchain",
        r"driver/library version mismatch",
        r"unsupported display driver / cuda driver combination",
        r"forward compatibility was attempted on non supported hw",
        r"found no nvidia driver on your system",
        r"error 802: system not yet initialized",
        r"the installed cuda version .{0,40}mismatches the version that was used to compile",
        r"detected cuda version .{0,60}mismatches the version that was used to compile",
    )
    search = (
        "The NVIDIA driver on your system is too old",
        "CUDA error: no kernel image is available for execution on the device",
        "sm_120 is not compatible with the current PyTorch installation",
        "Failed to initialize NVML: Driver/library version mismatch",
        "显卡驱动版本太低",
        "CUDA 和驱动不匹配",
        "no kernel image 显卡算力不支持",
        "driver library version mismatch 重启",
    )

    en = Card(
        title="Driver, CUDA build and card do not match",
        sign="The first CUDA call fails, or torch.cuda.is_available() is False although the machine has a card: driver too old, no kernel image is available, sm_120 is not compatible, Driver/library version mismatch.",
        cause="Three things must match. The driver must be new enough for the CUDA version of the torch wheel (12 needs 525 or newer, 13 needs 580 or newer). The wheel must contain kernels for the card's compute capability. After a driver update, the loaded kernel module is still the old one until a reboot.",
        remedy='Compare nvidia-smi (driver) with python -c "import torch; print(torch.version.cuda, torch.cuda.get_arch_list())". Old driver that you cannot update: install a wheel that it supports, uv pip install --reinstall torch --torch-backend=auto (or a fixed one such as cu121). New card: a newer wheel (RTX 50 needs cu128 and torch 2.7 or newer). Driver/library mismatch: reboot, or unload and reload the nvidia modules. Error 802: systemctl start nvidia-fabricmanager.',
        verify="python -c \"import torch; print(torch.cuda.get_device_name(), torch.ones(2, device='cuda').sum())\" prints the card and tensor(2.).",
        prevention="Print driver, torch.version.cuda and compute capability at the start of every run, and exclude driver packages from automatic upgrades.",
        question="Which driver does nvidia-smi show, and what do torch.version.cuda and torch.cuda.get_arch_list() say?",
        quiz="nvidia-smi shows CUDA Version 12.2, and torch is a cu130 build. Does it run? No: nvidia-smi shows the newest CUDA that the driver supports.",
    )
    zh = Card(
        title="驱动、CUDA 版本和显卡对不上",
        sign="第一个 CUDA 调用就报错，或者机器明明有卡而 torch.cuda.is_available() 是 False：driver too old、no kernel image is available、sm_120 is not compatible、Driver/library version mismatch。",
        cause="三样要对得上。驱动要够新，能支持 torch 包所用的 CUDA（12 要 525 以上，13 要 580 以上）；torch 包里要有这张卡算力对应的 kernel；驱动升级之后没重启的话，内核里加载的还是旧模块。",
        remedy='把 nvidia-smi 的驱动版本和 python -c "import torch; print(torch.version.cuda, torch.cuda.get_arch_list())" 放一起看。驱动旧又不能升：装它支持的包，uv pip install --reinstall torch --torch-backend=auto（或指定 cu121）。新卡：换新包（RTX 50 系要 cu128、torch 2.7 起）。Driver/library mismatch：重启，或卸载重载 nvidia 模块。Error 802：systemctl start nvidia-fabricmanager。',
        verify="python -c \"import torch; print(torch.cuda.get_device_name(), torch.ones(2, device='cuda').sum())\" 能打印卡名和 tensor(2.)。",
        prevention="每次训练开头打印驱动、torch.version.cuda、算力；把驱动从自动升级里排除。",
        question="nvidia-smi 显示的驱动是多少？torch.version.cuda 和 torch.cuda.get_arch_list() 是什么？",
        quiz="nvidia-smi 显示 CUDA Version 12.2，torch 是 cu130 的包，能跑吗？不能。nvidia-smi 显示的是这个驱动最高能支持的 CUDA。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "RuntimeError",
                    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
                )
            ),
            Evidence(
                crash=make.crashed(
                    "torch.AcceleratorError", "CUDA error: no kernel image is available for execution on the device"
                )
            ),
            Evidence(
                environment=Environment(cuda="13.0", driver="535.183.01", device="cpu", places={"driver": "nvidia-smi.txt:3"})
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same driver with a wheel of the older CUDA, and it trains
                environment=Environment(cuda="12.1", driver="535.183.01", device="cuda"), metrics=make.ran(loss=make.falling())
            ),
            Evidence(crash=make.crashed("RuntimeError", "CUDA error: device-side assert triggered")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = ended_with(seen, self.signatures, PROOF)
        if proof:
            return self.confirmed(*proof)
        gap, on_cpu = _gap(seen.environment), _device(seen.environment) == "cpu"
        told = lines(seen, *self.signatures, weight=5.0)
        if (gap or told) and on_cpu:
            return self.confirmed(*gap, *told)
        against = (*other_end(seen), *trained(seen))
        if against:
            return self.ruled_out(*against)
        if gap or told:
            return self.suspected(*gap, *told, missing=("crash",))
        cuda = wheel_cuda(seen.environment) if seen.environment is not None else None
        if seen.environment is not None and seen.environment.driver and cuda:
            driver = seen.environment.driver
            return self.ruled_out(
                say(f"driver {driver} supports CUDA {cuda}", f"驱动 {driver} 支持 CUDA {cuda}", -4.0, section="environment")
            )
        return self.not_checked(*self.needs)


def _gap(environment: Environment | None) -> tuple[Exhibit, ...]:
    """An exhibit that the driver's branch is below the lowest for the CUDA major version."""
    if environment is None:
        return ()
    driver, cuda = _major(environment.driver), _major(wheel_cuda(environment))
    needed = LOWEST_DRIVER.get(cuda) if cuda is not None else None
    if driver is None or needed is None or driver >= needed:
        return ()
    return (
        say(
            f"driver {environment.driver} is below {needed}, the lowest for CUDA {cuda}",
            f"驱动 {environment.driver} 低于 CUDA {cuda} 要求的最低版本 {needed}",
            6.0,
            section="environment",
            where=environment.places.get("driver", ""),
        ),
    )


def _device(environment: Environment | None) -> str:
    return (environment.device or "").lower() if environment is not None else ""


def _major(version: str | None) -> int | None:
    match = re.match(r"\d{1,4}", version or "")
    return int(match.group()) if match else None
