"""Several processes: samplers, what rank 0 does alone."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import LOOPS, Source, called, constant, dotted, keyword, last, names, receiver, targets

WRAPPERS = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard")
SHARDING = frozenset(
    {
        "DistributedSampler",
        "split_dataset_by_node",
        "DistributedBatchSampler",
        "StatefulDistributedSampler",
        "RandomDistributedSampler",
        "DistributedLengthGroupedSampler",
    }
)
RANKS = frozenset(
    {
        "rank",
        "world_size",
        "local_rank",
        "global_rank",
        "num_replicas",
        "num_shards",
        "process_index",
        "num_processes",
        "dp_rank",
        "ddp_rank",
        "ddp_world_size",
        "ddp_local_rank",
    }
)
MAIN = pattern(
    r"is_main_process|is_local_main_process|is_world_process_zero|is_rank_zero|is_master|master_process|is_main|rank_zero",
    re.IGNORECASE,
)
RANK = pattern(r"(?:^|_|\.)rank$|get_rank$", re.IGNORECASE)
SAVES = frozenset({"save", "save_pretrained", "save_model", "save_file", "save_checkpoint", "save_state", "dump"})
COLLECTIVES = frozenset({
    "all_reduce", "all_gather", "all_gather_object", "gather_object", "broadcast", "broadcast_object_list", "reduce_scatter", "barrier", "all_to_all",
    "wait_for_everyone", "gather_for_metrics", "all_gather_into_tensor", "get_state_dict",
})  # fmt: skip
WAITS = frozenset({"barrier", "wait_for_everyone", "monitored_barrier", "all_reduce", "broadcast"})


def check(source: Source, report: Report) -> None:
    """The facts of this group."""
    _samplers(source, report)
    _set_epoch(source, report)
    _shuffle(source, report)
    _rank_zero(source, report)


def training_loaders(source: Source) -> list[ast.Call]:
    """`DataLoader(...)` calls whose result the training loop runs over, or whose name says that it trains."""
    over = {
        name
        for loop, backward in source.step_loops
        for around in (loop, *source.loops(backward))
        if isinstance(around, (ast.For, ast.AsyncFor))
        for name in names(around.iter)
    }
    found = []
    for call in source.call("DataLoader", "StatefulDataLoader"):
        holder = next((parent for parent in source.up(call) if isinstance(parent, (ast.Assign, ast.AnnAssign))), None)
        held = {last(target) for target in targets(holder)} if holder is not None else set()
        if held & over or any("train" in name.lower() for name in held):
            found.append(call)
    return found


def _streams(source: Source) -> bool:
    return any("Iterable" in word for word in source.words) or any(
        constant(keyword(call, "streaming")) is True for call in source.call("load_dataset")
    )


def _samplers(source: Source, report: Report) -> None:
    loaders = training_loaders(source)
    sharded = bool(SHARDING & source.words) or bool(source.call("shard"))
    prepared = {last(argument) for call in source.call("prepare") for argument in call.args}
    for loader in loaders:
        holder = next((parent for parent in source.up(loader) if isinstance(parent, ast.Assign)), None)
        held = {last(target) for target in targets(holder)} if holder is not None else set()
        if held & prepared:
            report.checked("loader-doubly-distributed")
            if _own_shard(source, loader):
                report.fact("loader-doubly-distributed", loader, "a distributed sampler, and prepare() shards once more")
    wrapped = source.call(*WRAPPERS) or [call for call in source.call("initialize") if receiver(call) == "deepspeed"]
    if not wrapped or not loaders or {"Accelerator", "Trainer", "LightningModule", "Fabric"} & source.words or _streams(source):
        return
    report.checked("loader-not-distributed")
    for loader in loaders:
        if not sharded and not _ranked(source, loader):
            report.fact("loader-not-distributed", loader, f"{called(wrapped[0])} without a distributed sampler")


def _own_shard(source: Source, loader: ast.Call) -> bool:
    sampler = source.value(keyword(loader, "sampler"))
    if sampler is not None and called(sampler) in SHARDING:
        return True
    data = source.value(loader.args[0] if loader.args else keyword(loader, "dataset"))
    return data is not None and called(data) in {"split_dataset_by_node", "shard"}


def _ranked(source: Source, loader: ast.Call) -> bool:
    """Whether rank or world size plays any part in what the loader reads, as far as two names back."""
    seen: set[str] = set()
    wanted = names(loader)
    for _ in range(3):
        if wanted & RANKS or any("sampler" in name.lower() for name in wanted - {"sampler"}):
            return True
        seen |= wanted
        following = {name for held in wanted for given in source.assignments.get(held, ()) for name in names(given.value)}
        wanted = following - seen
    local = [node for node in source.classes if node.name in seen]
    return (
        keyword(loader, "sampler") is not None
        or keyword(loader, "batch_sampler") is not None
        or any(names(node) & RANKS for node in local)
    )


def _set_epoch(source: Source, report: Report) -> None:
    samplers = [call for call in source.call("DistributedSampler") if constant(keyword(call, "shuffle")) is not False]
    epochs = [
        loop
        for _, backward in source.step_loops
        for loop in (*source.loops(backward)[1:], *source.outer_loops(backward))
        if _over_epochs(loop)
    ]
    if not samplers or not epochs:
        return
    report.checked("set-epoch-missing")
    if not source.call("set_epoch"):
        report.fact("set-epoch-missing", samplers[0])


def _over_epochs(loop: ast.AST) -> bool:
    return isinstance(loop, ast.For) and any("epoch" in name.lower() for name in names(loop.target) | names(loop.iter))


def _shuffle(source: Source, report: Report) -> None:
    if _streams(source) or not source.backwards:
        return
    for loader in training_loaders(source):
        if any(keyword(loader, name) is not None for name in ("sampler", "batch_sampler")) or any(
            item.arg is None for item in loader.keywords
        ):
            continue
        if len(loader.args) > 2:
            continue
        report.checked("shuffle-off")
        given = keyword(loader, "shuffle")
        if (given is None or constant(given) is False) and not source.call("shuffle", "randperm", "permutation"):
            report.fact(
                "shuffle-off", loader, "shuffle is False" if given is not None else "shuffle is not set; the default is False"
            )


def rank_zero_blocks(source: Source) -> list[ast.If]:
    """`if rank == 0:`, `if accelerator.is_main_process:` and the like; not their else branches."""
    return [node for node in source.nodes if isinstance(node, ast.If) and _rank_zero_test(node.test)]


def _rank_zero_test(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_rank_zero_test(value) for value in test.values)
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and constant(test.comparators[0]) == 0
    ):
        return RANK.search(dotted(test.left)) is not None
    return MAIN.search(dotted(test)) is not None


def _rank_zero(source: Source, report: Report) -> None:
    for block in rank_zero_blocks(source):
        report.checked("rank-zero-collective")
        body = [node for statement in block.body for node in (statement, *source.inside(statement))]
        for node in body:
            if (
                called(node) in COLLECTIVES
                and isinstance(node, ast.Call)
                and not _thread(receiver(node))
                and not _answered(source, block, node)
            ):
                report.fact("rank-zero-collective", node, "the other ranks do not reach it")
            elif called(node) == "save_checkpoint" and "engine" in receiver(node) and isinstance(node, ast.Call):
                report.fact("rank-zero-collective", node, "DeepSpeed saves on all ranks together")
        saves = [node for node in body if called(node) in SAVES and isinstance(node, ast.Call)]
        looped = any(isinstance(parent, LOOPS) for parent in source.up(block)) or any(
            source.loops(caller) for caller in source.callers(source.function(block))
        )
        if saves and looped and source.backwards:
            report.checked("rank-zero-save-without-barrier")
            if not WAITS & source.words:
                report.fact("rank-zero-save-without-barrier", saves[0])


def _answered(source: Source, block: ast.If, call: ast.Call) -> bool:
    """Whether the other ranks have a collective of their own: in the else branch, or under the opposite test in the same function."""
    others = [node for statement in block.orelse for node in (statement, *source.inside(statement))]
    for node in source.inside(source.function(block)):
        if isinstance(node, ast.If) and node is not block and not _rank_zero_test(node.test) and _of_rank(node.test):
            others.extend(source.inside(node))
    return any(called(node) in COLLECTIVES for node in others) or any(isinstance(parent, ast.Call) for parent in source.up(call))


def _of_rank(test: ast.expr) -> bool:
    """Whether a test asks for the rank in any way."""
    return any(RANK.search(word) or MAIN.search(word) for word in names(test))


def _thread(name: str) -> bool:
    """Threads have barriers too."""
    return "thread" in name.lower()
