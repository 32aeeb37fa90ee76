"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

CORPUS = Path(os.environ.get("TUNECLINIC_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real runs, configs, templates and data sets; tests that use it are skipped where it is absent."""
    if not (CORPUS / "manifest.jsonl").is_file():
        pytest.skip("the corpus of real runs is not beside this checkout")
    return CORPUS


# what lands must not depend on the day's draw: a new counter-example is looked for by every run at a desk
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
