"""Wrapping text to a number of terminal cells, Chinese included.

A break may stand after a space or a hyphenated path separator, and between two wide characters, but never before closing punctuation nor
after opening punctuation (the line-start and line-end rules of Chinese typesetting, GB/T 15834).
"""

from __future__ import annotations

from rich.cells import cell_len

NOT_FIRST = frozenset("，。、；：？！）》」』】〉”’％%…,.;:?!)]}·")
NOT_LAST = frozenset("（《「『【〈“‘([{")


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells; a piece that is longer than a line is cut."""
    lines: list[str] = []
    line, used = "", 0
    for piece in _pieces(text):
        size = cell_len(piece.rstrip(" "))
        if used and used + size > width:
            lines.append(line.rstrip(" "))
            line, used = "", 0
            piece = piece.lstrip(" ")  # noqa: PLW2901 - a line does not begin with the space it broke at
        while cell_len(piece) > width:
            head, piece = _cut(piece, width - used)  # noqa: PLW2901 - the rest of a piece too long for a line
            lines.append(line + head)
            line, used = "", 0
        line += piece
        used = cell_len(line)
    if line.strip() or not lines:
        lines.append(line.rstrip(" "))
    return lines


def _pieces(text: str) -> list[str]:
    """`text` cut at every place where a line may end."""
    pieces: list[str] = []
    piece = ""
    for at, character in enumerate(text):
        piece += character
        following = text[at + 1] if at + 1 < len(text) else ""
        if following and _may_break(character, following):
            pieces.append(piece)
            piece = ""
    return [*pieces, piece] if piece else pieces


def _may_break(before: str, after: str) -> bool:
    if after == " " or after in NOT_FIRST or before in NOT_LAST:
        return False
    return before == " " or _wide(before) or _wide(after)


def _wide(character: str) -> bool:
    return "\u2e80" <= character <= "\uffef" or character >= "\U00020000"


def _cut(piece: str, width: int) -> tuple[str, str]:
    used, at = 0, 0
    for at, character in enumerate(piece):  # noqa: B007 - `at` is where the loop stopped
        used += cell_len(character)
        if used > width:
            break
    at = max(at, 1)
    return piece[:at], piece[at:]
