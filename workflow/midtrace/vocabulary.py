"""Tokenizers and what is known of a model without loading its weights."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midtrace.errors import InputError, require_filled


def field_of(model: Mapping[str, Any], key: str) -> str:
    """Where a config has a key of a model entry. One without a name is the judge's."""
    return f"models.{model['name']}.{key}" if "name" in model else f"judge.model.{key}"


def require_commit(model: Mapping[str, Any]) -> None:
    """Refuse a model entry of a hub whose commit is not chosen yet; see :func:`midtrace.errors.require_filled`."""
    if not Path(model["source"]).is_dir():
        require_filled(model.get("revision"), "config", field_of(model, "revision"), f"the commit of {model['source']} to run")


def load_tokenizer(model: Mapping[str, Any]) -> Any:
    """The Transformers tokenizer of a model entry, with ``generation_ends``: ids at which the model's own settings end an output."""
    from transformers import AutoTokenizer

    require_commit(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model["source"], revision=model.get("revision"))
    except (OSError, ValueError) as error:
        raise InputError("config", field_of(model, "source"), f"no tokenizer in {model['source']!r} ({str(error).splitlines()[0]})") from None
    tokenizer.generation_ends = _generation_ends(model)  # for midtrace.dialects.stop_ids
    return tokenizer


def _generation_ends(model: Mapping[str, Any]) -> list[int]:
    """The ids that the model's generation settings list as ends of an output; a model may name several, or none."""
    from transformers import GenerationConfig

    try:
        ends = GenerationConfig.from_pretrained(model["source"], revision=model.get("revision") or "main").eos_token_id
    except (OSError, ValueError):
        return []
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def context_length(model: Mapping[str, Any]) -> int | None:
    """The longest sequence that the model may be given: its ``context``, or what its configuration allows; None if neither says.

    Raises
    ------
    InputError
        If more is asked for than its configuration allows, or it has none that can be read.
    """
    own = getattr(_configuration(model).get_text_config(), "max_position_embeddings", None)
    asked = model.get("context")
    if own and asked and asked > own:
        raise InputError("config", field_of(model, "context"), f"is {asked}", f"at most {own}, the model's own")
    return asked or own


def _configuration(model: Mapping[str, Any]) -> Any:
    """The Transformers configuration of a model entry; that of a multimodal one holds another for text."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model["source"], revision=model.get("revision"))
    except (OSError, ValueError, KeyError) as error:
        problem = f"no configuration in {model['source']!r} ({' '.join(str(error).split())[:200]})"
        raise InputError("config", field_of(model, "source"), problem, "a model that this Transformers knows") from None


def require_context(model: Mapping[str, Any], what: str, tokens: int) -> None:
    """Refuse a sequence that is too long for the model, before it is loaded.

    Raises
    ------
    InputError
        If ``tokens`` (of ``what``) are more than its context.
    """
    context = context_length(model)
    if context is not None and tokens > context:
        raise InputError(what, field_of(model, "context"), f"{tokens} tokens exceed the context", f"at most {context} tokens")


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of the vocabulary."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
