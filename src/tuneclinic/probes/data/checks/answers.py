"""Answers that teach nothing or the wrong thing: empty, refused, constant, copied from the prompt."""

from __future__ import annotations

import re
from collections import Counter

from tuneclinic.patterns import pattern
from tuneclinic.probes.data.checks import Check, Found, hits
from tuneclinic.probes.data.row import Row, Table, shown

CONSTANT_SHARE = 0.95
"""From this share of one and the same answer on, a set has one answer: the commonest answer of 17 real sets has 0 to 77 %."""
CONSTANT_ROWS = 20
"""Fewer rows than these may share one answer by chance or as an example file."""
COPIED_CHARS = 20
"""Shorter answers (a label, a name) stand at the end of a prompt by nature: "… yes or no"."""
COPIED_SHARE = 0.05
"""Editing tasks have rows whose text is right as it is and comes back unchanged; a leaked answer is in nearly every row. In 17
real sets 0 to 0.33 % of rows end in their own answer."""
REFUSED = pattern(
    r"""\W*(?:
      (?:(?:i['’]?\ ?m|i\ am|we['’]?re)\ (?:very\ |so\ |really\ |truly\ )?)?(?:sorry|afraid)\b[^.\n]{0,40}?\bi\ ?(?:['’]m|am)?\ ?
        (?:(?:can(?:['’]?t|not|\ not)|unable\ to|not\ able\ to|won['’]?t)\ (?:\w+ly\ )?(?:be\ able\ to\ )?(?:assist|help|provide|fulfil|answer|comply|
          generate|create|retrieve|access|perform|browse|book|order|discuss|engage|determine|display|complete|process|do\ (?:that|this)|
          share|give|offer|write|respond|continue|say|produce)|(?:do\ not|don['’]?t)\ have\ the\ (?:cap|abil))
      | i\ apologi[sz]e,?\ but\ i\ ?(?:can(?:['’]?t|not)|am\ unable|['’]m\ unable|am\ not\ able)
      | i\ (?:can(?:['’]?t|not)|won['’]?t|am\ unable\ to|am\ not\ able\ to)\ (?:assist|help\ (?:you\ )?with|provide|fulfill|comply|generate|create|engage|discuss)
      | as\ an?\ (?:ai|artificial\ intelligence|large\ language|language)\b[^.\n]{0,40}?\bi\ ?(?:['’]m|am)?\ ?
        (?:can(?:['’]?t|not)|unable|not\ able|(?:do\ not|don['’]?t)\ have\ the\ (?:cap|abil)|won['’]?t)
      | (?:非常|很|十分)?(?:抱歉|对不起|不好意思)[，,。 ]{1,2}(?:但是?)?(?:作为[^，,。]{0,20}[，,])?我(?:无法|不能|没办法|没有办法)
      | 作为一?[个名款]?(?:AI|人工智能|大?语言模型)[^。\n]{0,20}?我?(?:无法|不能|没有能力)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""How refusals of instruction-tuned models open, in English and Chinese."""
REFUSAL_CHARS = 400
"""A refusal is short; a long text that opens like one goes on to help."""
TURN = pattern(r"\b(?:however|but i can|instead)\b|但|不过|然而", re.IGNORECASE)
"""Words with which a text that opens like a refusal turns to an answer."""
OPENERS = "IiAaSsWw抱对非很十不作\"'*“"
"""What a refusal's first character can be; keeps the pattern off most answers."""


class Empty(Check):
    """An assistant turn without text. A turn that calls a tool may have none."""

    names = ("empty-answer",)

    def find(self, table: Table) -> Found:
        """Rows in which any assistant turn is blank."""
        if not table.answers:
            return {}
        rows = [row for row, _ in table.answers if not row.calls and _blank(row)]
        return {"empty-answer": hits([(row, " / ".join(text for _, text in row.messages)) for row in rows])}


class Refusal(Check):
    """Answers that open as a model's refusal does."""

    names = ("refusal",)

    def find(self, table: Table) -> Found:
        """Rows whose last answer is a refusal."""
        if not table.answers:
            return {}
        rows = [(row, text) for row, text in table.answers if text[:1] in OPENERS and _refuses(text)]
        return {"refusal": hits(rows)}


class Trivial(Check):
    """One answer to everything."""

    names = ("answer-trivial",)

    def find(self, table: Table) -> Found:
        """Rows with the one answer, where nearly all have it."""
        if len(table.answers) < CONSTANT_ROWS:
            return {}
        answer, count = Counter(text.strip() for _, text in table.answers).most_common(1)[0]
        if not answer or count < CONSTANT_SHARE * len(table.answers):
            return {"answer-trivial": ([], "")}
        return {"answer-trivial": ([row.number for row, text in table.answers if text.strip() == answer], shown(answer))}


class InPrompt(Check):
    """Prompts that end with their own answer: the prompt column holds the whole text."""

    names = ("answer-in-prompt",)

    def find(self, table: Table) -> Found:
        """Rows whose last prompt ends with the answer, where more rows do than editing tasks explain."""
        if not table.answers:
            return {}
        rows = [(row, text) for row, text in table.answers if len(text) >= COPIED_CHARS and _copied(row, text.strip())]
        few = len(rows) < max(2, COPIED_SHARE * len(table.answers))
        return {"answer-in-prompt": ([], "") if few else hits(rows)}


def _refuses(text: str) -> bool:
    if len(text) > REFUSAL_CHARS:
        return False
    match = REFUSED.match(text)
    return match is not None and not TURN.search(text, match.end())


def _blank(row: Row) -> bool:
    return any(role == "assistant" and (not text or text.isspace()) for role, text in row.messages)


def _copied(row: Row, answer: str) -> bool:
    before = row.prompt
    if not answer or not before or before[-1][0] != "user":
        return False
    prompt = before[-1][1].rstrip()
    return len(prompt) > len(answer) and prompt.endswith(answer)
