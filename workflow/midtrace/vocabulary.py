"""Tokenizers and what is known of a model without loading its weights."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from midtrace.errors import InputError


def load_tokenizer(model: Mapping[str, Any]) -> Any:
    """The Transformers tokenizer of a model entry."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model["source"], revision=model.get("revision"))
    except (OSError, ValueError) as error:
        raise InputError("config", f"models.{model['name']}.source", f"no tokenizer in {model['source']!r} ({str(error).splitlines()[0]})") from None


def context_length(model: Mapping[str, Any]) -> int | None:
    """The longest sequence that the model takes, from its configuration; None if it does not say."""
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(model["source"], revision=model.get("revision")), "max_position_embeddings", None)


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of the vocabulary."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
