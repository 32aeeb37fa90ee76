"""How a description of a run is taken apart for searching: words, numbers, and what they mean in either language."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

from tuneclinic.patterns import pattern

LONGEST = 4_000
"""Characters of a query that are read: a pasted traceback's end says more than its beginning."""
SMALL_LOSS = 0.02
"""A number with a decimal point below this reads as "about zero"; learning rates in a question are written with an exponent."""
LN_V = (10.3, 12.6)
"""Between ln(30k) and ln(300k), the usual vocabularies: such a number reads as the loss of guessing evenly."""

_SPLIT = pattern(r"[a-z]+[0-9]*|[0-9]+(?:\.[0-9]+)?|[\u3400-\u9fff]+")
_STOP = frozenset(
    re.findall(
        r"\S+",
        "a an the is are was were be been i my me we it its this that these to of in on at for with and or but do does did t s so as by"
        " from when while what why how could there than if have has had get gets got just over time all any some very too keep keeps go goes going"
        " went even only still whatever really much lot always every each now using use way help please anyone"
        " 的 了 是 我 在 就 和 都 也 很 有 会 把 着 吗 呢 吧 啊 这 那 个 们",
    )
)
_STOP_PAIRS = frozenset(
    {"越来", "来越", "怎么", "么办", "一直", "什么", "原因", "因为", "为什", "了怎", "么回", "回事", "是不", "不是", "时候"}
)
_NEGATIONS = frozenset({"not", "no", "never", "don", "doesn", "didn", "won", "isn", "aren", "can", "cannot", "fails", "without"})
_NEGATED = {
    "~fall": "~no fall",
    "~learn": "~no fall",
    "~stop": "~endless",
    "~memorise": "~cannot memorise",
    "~return": "~no return",
}
_REACH = 4
"""Words after a negation that it may still speak of: "does not seem to go down"."""

_CONCEPTS: dict[str, str] = {
    "start": "start begin beginning first immediately initial outset startup iteration_0 right_away 第一 第一步 一开始 刚开始 开训 刚启动 刚 一上来"
    " 一启动 启动 首步 最初 起步 开头 一加载 一跑",
    "later": "after later middle midway halfway mid sudden suddenly then eventual eventually hour minute around_step 中途 一半 之后 后来 突然 忽然"
    " 后期 中后期 跑着 跑了 跑到 训着 训了 几百步 几千步 小时 前面 之前 才变 大半天 一天 一晚 半夜 先降 第二个 day",
    "rise": "rise rising increase increasing up upward grow growing climb climbing higher explode blow blew soar 上升 升高 变大 变高 越来越大 越来越高"
    " 越训越高 上涨 反弹 飙 往上 往上走 涨 爆炸 升 不降反升 飞了 shot_up shoot_up spiked 突变 跑飞",
    "fall": "fall decrease decreasing down drop decline lower reduce 下降 降 掉 往下 下不去",
    "learn": "learn learning improve improvement converge progress 学 收敛",
    "flat": "flat stuck plateau stagnate stagnating constant unchanged same stay stall hover hovering whole_run 不动 不变 没变 基本没变 停在 卡在 没变化"
    " 没有变化 纹丝 一条直线 平的 horizontal line level_off 都不动 没动",
    "no fall": "不降 不下降 降不 降不下 不收敛 学不 下不去 没学 学不进 没效果 没有提升 没有任何提升",
    "eval": "eval evaluate evaluation evaluating valid validate validation val heldout dev_set test_set 验证 评估 评测 测试集 验证集 test_loss test_accuracy 测试 评分",
    "train": "train training 训练 训练集",
    "swing": "oscillate oscillating fluctuate fluctuating fluctuation spike spiky jump zigzag noisy jitter unstable instability erratic wild wildly"
    " bounce swing jagged peak reproducible 震荡 振荡 波动 乱跳 跳来跳去 忽高忽低 忽上忽下 时高时低 抖 抖动 毛刺 尖峰 不稳定 跳动 一会儿高 上下乱跳 锯齿 心电图 过山车 抖得 roller_coaster",
    "zero": "zero nothing 近零 接近零 到零 零附近 太低 几乎为零 too_low too_good",
    "nan": "nan inf infinite nonfinite",
    "memory": "memory oom 显存 内存 爆了",
    "oom": "oom out_memory 爆显存 显存不 显存不够 显存不足 显存溢出 不够 放不进 放不下 装不下 not_fit too_large too_big 太大",
    "hang": "hang hung freeze froze frozen deadlock watchdog stuck 卡死 卡住 挂起 没反应 死锁 不走 停住 不再更新 watchdog 停住",
    "timeout": "timeout timed 超时",
    "crash": "crash exception error traceback abort exit exitcode killed segfault died 报错 崩 崩了 退出 抛异常 异常退出 中断",
    "repeat": "repeat repetitive repetition loop again_again over_over parrot identical identically 重复 复读 循环 一个模子 千篇一律 套话 套路 翻来覆去 车轱辘 一句话",
    "templated": "templated boilerplate identically like_template 套路 一个模子 千篇一律 模板化",
    "stop": "stop end terminate finish",
    "endless": "endless endlessly nonstop forever new_token max_token max_length max_new truncated eos 停不 停不下 不停 不结束 不会停 不终止 没完没了 停止不 一直写"
    " 一直生成 一直到 自问自答 outputting_after after_answer 还一直输出 一直输出",
    "forget": "forget forgot forgetting catastrophic lost lose 遗忘 忘了 忘记 不会了 原来会 原有能力 原来的 洗掉 变傻 no_longer longer 全忘 忘 忘光 只会",
    "general": "general mmlu ceval gsm8k everything_else other_task 通用 其他任务 别的",
    "token mark": "special_token template_token control_token template_mark marker 模板标记 特殊符号 特殊标记 特殊字符 标签 标记",
    "image": "image picture photo vision visual vlm vl multimodal llava internvl pixel caption 图片 图像 图 视觉 多模态",
    "blind": "ignore ignoring blind see look looking 看不 没看 不看 失明 看见 看到 无关 答非所问 对不上 not_in 没有进",
    "serving": "inference deploy deployed deployment serve served serving vllm ollama gguf lmdeploy sglang tgi production 推理 部署 上线 线上 服务",
    "bad": "bad worse poor terrible garbage rubbish nonsense gibberish wrong degrade dumber ruin 变差 很差 不对 乱码 胡说 效果差 掉点 变坏 不行 差 崩了 broken 胡言 变傻 傻",
    "base": "base original untuned vanilla 原模型 基座 底座 原始模型 原版 没挂",
    "adapter": "adapter lora peft",
    "merge": "merge merging merged fuse 合并 融合",
    "quantise": "quantize quantization quantise quantisation quantized gptq awq int4 int8 4_bit 8_bit 量化",
    "slow": "slow slower slowly speed throughput utilization utilisation util usage bottleneck longer 慢 速度 利用率 耗时 吞吐 占用",
    "several cards": "multi_gpu multiple_gpu gpus ddp fsdp nccl rank distributed torchrun processgroup 多卡 张卡 每张卡 单卡 加卡 加了卡 分布式 多机 各个进程",
    "resume": "resume resuming resumed restart continue continuing interrupt interrupted interruption 断点 续训 恢复训练 恢复 接着训 接着上次",
    "preference": "dpo grpo ppo kto orpo rlhf reward chosen rejected margin kl preference logp 偏好 强化学习 奖励",
    "few samples": "single_batch one_batch few_sample ten_sample 10_sample 8_example 10_example few_example tiny_dataset 单 一个batch 几条 十条 五条 小样本 小数据",
    "memorise": "overfit overfitting memorise memorize memorizing heart recite 过拟合 背下 记住",
    "uniform": "uniform uniformly guess guessing random vocab vocabulary log_v ln 瞎猜 乱猜 随机 词表 对数 均匀",
    "load": "load loading loaded 加载",
    "loss": "loss 损失",
    "return": "recover comes_back came_back come_back",
    "no return": "回不来 下不来 回不去 没下来 下不去了 stayed",
    "diverge": "diverge diverging divergence 发散",
    "cannot memorise": "背不 背不下 记不住 过拟合测 过拟合不 过拟合降 降不到",
}
"""Words that mean the same when a run is described, in both languages, so that a question and a card that use different ones still
meet. `_` joins two words that must follow each other."""

_FAILS = pattern(r"\b(?:fails?|failed|stuck|not pass|doesn.?t pass)\b|不过|失败|不了")
_MARK = pattern(r"<[|｜]?\w+[|｜]?>|\[/?inst\]|### ?\w+")


def words_of(text: str, *, concepts: bool = True) -> list[str]:
    """The index words of a text: stems of Latin words, numbers, pairs of Chinese characters, and what they mean (`~rise`)."""
    flat = text[:LONGEST].lower()
    if not flat.isascii():
        flat = unicodedata.normalize("NFKC", flat)
    found_words: list[str] = []
    if concepts and _MARK.search(flat):
        found_words.append("~token mark")
        flat = _MARK.sub(" ", flat)
    before, negated = "", 0
    for piece in _SPLIT.findall(flat):
        negated -= 1
        if piece in _STOP:
            continue
        if piece in _NEGATIONS:
            negated = _REACH
        elif piece[0] > "z":
            found_words += _chinese(piece, concepts=concepts)
            before = piece
        elif piece[0] <= "9":
            found_words += _number(piece, before)
            before = piece
        else:
            word = _stem(piece)
            found_words.append(word)
            if concepts:
                names = _MEANING.get(word, ()) + _MEANING.get(f"{before}_{word}", ())
                found_words += [_NEGATED.get(name, name) for name in names] if negated > 0 else names
            before = word
    if "~memorise" in found_words and _FAILS.search(flat):
        found_words.append("~cannot memorise")
    return found_words


def _chinese(piece: str, *, concepts: bool) -> list[str]:
    """Pairs of characters, and the meanings of the longest known words from left to right."""
    if len(piece) == 1:
        return [piece, *_MEANING.get(piece, ())] if concepts else [piece]
    words = [pair for first, second in pairwise(piece) if (pair := first + second) not in _STOP_PAIRS]
    at, end = 0, len(piece) if concepts else 0
    while at < end:
        for size in (4, 3, 2, 1):
            names = _MEANING.get(piece[at : at + size])
            if names is not None:
                words += names
                at += min(size, end - at) - 1
                break
        at += 1
    return words


def _number(piece: str, before: str) -> list[str]:
    """A number, and what it means beside a loss or a step."""
    value = float(piece)
    words = [piece] if len(piece) > 2 else []
    if before in {"step", "iteration", "iter", "epoch"} or before.endswith(("第", "前", "到", "了")):
        words.append("~start" if value <= 1 else "~later")
    elif "." in piece and value < SMALL_LOSS:
        words.append("~zero")
    elif (before in {"log", "ln"} and value > LN_V[1]) or ("." in piece and LN_V[0] < value < LN_V[1]):
        words.append("~uniform")
    return words


@cache
def _stem(word: str) -> str:
    """A word without its English ending: `repeating`, `repeats` and `repeated` are one."""
    if len(word) < 4 or word.endswith("ss") or word == "gpus":
        return word
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "sl" else word


def _meanings() -> dict[str, tuple[str, ...]]:
    """Each word of the concepts with what it means."""
    table: dict[str, tuple[str, ...]] = {}
    for name, words in _CONCEPTS.items():
        for word in words.split():
            key = "_".join(_stem(part) if part.isascii() else part for part in word.split("_"))
            table[key] = (*table.get(key, ()), f"~{name}")
    return table


_MEANING = _meanings()
