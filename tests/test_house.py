"""The house rules that a linter does not hold: short files, short functions, no trace of torch, names of the floors."""

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tuneclinic"
FILES = sorted(SOURCE.rglob("*.py"))


def _functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_files_are_short():
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert {str(path.relative_to(SOURCE)): lines for path, lines in lengths.items() if lines > 400} == {}
    assert statistics.median(lengths.values()) <= 150


def test_functions_are_short():
    lengths = [(lines, f"{path.relative_to(SOURCE)}:{name}") for path in FILES for name, lines in _functions(path)]
    assert [name for lines, name in lengths if lines > 100] == []
    assert statistics.median(lines for lines, _ in lengths) <= 15


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "--help"], ["explain", "--help"], ["book", "--help"]])
def test_help_starts_bare_and_loads_no_numpy(arguments):
    program = (
        "import sys\n"
        "from tuneclinic.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "heavy = {'numpy', 'torch', 'transformers', 'rich', 'jinja2', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
