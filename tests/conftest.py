"""What several tests share."""

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VOCABULARIES = {"embedded": ROOT / "resources/embedded", **{name: ROOT.parent / "shared/tokenizers" / name for name in ("qwen3", "gptoss")}}


@cache
def _tokenizer(name: str):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(VOCABULARIES[name])


@pytest.fixture(scope="session")
def vocabulary():
    """A function from a name to its real tokenizer; the test is skipped where that vocabulary is absent."""

    def load(name: str):
        if not VOCABULARIES[name].is_dir():
            pytest.skip(f"the {name} vocabulary is absent: {VOCABULARIES[name].relative_to(ROOT.parent)}")
        return _tokenizer(name)

    return load
