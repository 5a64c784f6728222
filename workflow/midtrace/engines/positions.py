"""Rotary positions that depend on how long a forward is: which models have them, and up to how many tokens they do not matter.

Most schemes give a token at a position the same rotation in every forward. Two kinds of Transformers do not: ``longrope`` has one set of
frequencies up to the length that the model was first trained for and another beyond, and ``dynamic`` scaling has one set up to that length
and a new one for every length beyond; it also keeps the frequencies of the longest forward so far until a short one comes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

# The same at any length. A type that stands neither here nor below is taken for one that changes at every length.
FIXED = ("default", "linear", "yarn", "llama3", "proportional")
SWITCH, GROWING = "longrope", "dynamic"


@dataclass(frozen=True)
class Scheme:
    """How rotations depend on the number of tokens of a forward.

    Attributes
    ----------
    name
        The config's rope type.
    limit
        Up to this many tokens every length has the same rotations.
    """

    name: str
    limit: int

    def stage(self, n: int) -> int:
        """A number that two lengths share if and only if their rotations are the same; 0 up to the limit."""
        return int(n > self.limit) if self.name == SWITCH else n if n > self.limit else 0


def schemes(config: Any) -> list[Scheme]:
    """The schemes of a model's configuration whose rotations depend on the length; empty for most models.

    Looked for in the text model of a multimodal one, and by type of layer where those differ.
    """
    text = config.get_text_config()
    found = []
    for parameters in _by_layer(getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}):
        name = parameters.get("rope_type") or parameters.get("type") or "default"
        if name in FIXED:
            continue
        limit = 0
        if name == SWITCH:
            own = getattr(text, "original_max_position_embeddings", None)
            limit = parameters.get("original_max_position_embeddings") or own or text.max_position_embeddings
        elif name == GROWING:
            limit = text.max_position_embeddings
        found.append(Scheme(name, int(limit)))
    return list(dict.fromkeys(found))


def _by_layer(parameters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parameters themselves, or those of every type of layer."""
    nested = [value for value in parameters.values() if isinstance(value, Mapping)]
    yield from nested or [parameters]


def forget(model: Any) -> None:
    """Take back what long forwards left behind: a forward of one token resets dynamic scaling."""
    model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device), use_cache=False, logits_to_keep=1)
