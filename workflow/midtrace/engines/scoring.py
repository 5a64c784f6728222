"""Reading many closed prefixes with a Transformers model: three ways that give what a forward of each whole prefix gives.

``branched``
    Requests whose trunks begin alike are one tree: the longest trunk is prefilled once, and every cut with its closing is a branch. A branch
    sees the tokens before its cut and itself, at the positions that follow them. Trees of about the same length share a forward. Exact
    where each layer attends to whatever the mask shows: full attention with given positions.
``walked``
    The cache grows from cut to cut and is copied at each; the closing is read on the copy. For layers that see a window or a chunk only.
``separate``
    One forward per prefix, no cache. For recurrent layers, which go on from a state by one token at a time, for prefixes so long that
    their length decides the rotations (:mod:`midtrace.engines.positions`), and for whatever else.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from midtrace.engines import ScoreRequest, positions
from midtrace.engines.positions import Scheme

TOKENS = 4096  # per forward, padding included
PAIRS = 2**24  # of a query and a key per forward: bounds the mask, and the scores of a kernel that keeps them
PADDING = 1.25  # trees of one forward differ in length by at most this factor
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4}  # total variation between two ways; in half precision 0.05
LOG = logging.getLogger(__name__)

Read = tuple[int, int]  # index of the request, row of its result


@dataclass(frozen=True)
class Branch:
    """What is read after ``trunk[:cut] + suffix``, and where the result goes."""

    read: Read
    cut: int
    suffix: list[int]


@dataclass(frozen=True)
class Tree:
    """A trunk, as far as any branch needs it, and its branches."""

    trunk: list[int]
    branches: list[Branch]


Way = Callable[[Any, Sequence[Tree], list[int]], Iterator[tuple[Read, np.ndarray]]]


@torch.inference_mode()
def score(model: Any, requests: Sequence[ScoreRequest], candidates: Sequence[int], way: Way, schemes: Sequence[Scheme] = ()) -> list[np.ndarray]:
    """Log-probabilities of ``candidates``: per request an array of shape (cuts, candidates), float32 (float64 for a float64 model).

    Prefixes whose length decides the rotations (``schemes``) are read in forwards of their own, whatever the way of the others.
    """
    grown, limit = trees(requests), min((scheme.limit for scheme in schemes), default=math.inf)
    found: dict[Read, np.ndarray] = {}
    if schemes:
        positions.forget(model)
    within = [_part(tree, [branch for branch in tree.branches if branch.cut + len(branch.suffix) <= limit]) for tree in grown]
    found |= way(model, [tree for tree in within if tree.branches], list(candidates))
    for tree in grown:
        for branch in tree.branches:
            if branch.cut + len(branch.suffix) > limit:
                positions.forget(model)
                found |= separate(model, [Tree(tree.trunk, [branch])], list(candidates))
    return [np.stack([found[index, row] for row in range(len(request.cuts))]) for index, request in enumerate(requests)]


def trees(requests: Sequence[ScoreRequest]) -> list[Tree]:
    """The requests as trees: one whose trunk begins with that of another shares its prefill."""
    grown: list[Tree] = []
    trunks = [list(request.trunk[: max(request.cuts)]) for request in requests]
    for index in sorted(range(len(requests)), key=trunks.__getitem__):  # a prefix comes right before what it begins
        branches = [_branch(requests[index], index, row) for row in range(len(requests[index].cuts))]
        if grown and grown[-1].trunk == trunks[index][: len(grown[-1].trunk)]:
            grown[-1] = Tree(trunks[index], grown[-1].branches + branches)
        else:
            grown.append(Tree(trunks[index], branches))
    return grown


def _part(tree: Tree, branches: list[Branch]) -> Tree:
    """The tree of some of its branches: no longer than they need it."""
    return tree if len(branches) == len(tree.branches) else Tree(tree.trunk[: max((branch.cut for branch in branches), default=0)], branches)


def _branch(request: ScoreRequest, index: int, row: int) -> Branch:
    cut, suffix = request.cuts[row], list(request.suffix)
    if not suffix:  # nothing is closed: the last token of the prefix is read
        cut, suffix = cut - 1, list(request.trunk[cut - 1 : cut])
    return Branch((index, row), cut, suffix)


def way_of(model: Any, schemes: Sequence[Scheme] = ()) -> Way:
    """The cheapest way that is exact for a model: by the kinds of its layers, then tried out on a few tokens.

    The trial finds what the configuration does not tell: positions or masks that an attention implementation takes no notice of. It reads
    three prefixes, so it says nothing about windows longer than they are, nor about rotations that depend on the length: prefixes beyond the
    limit of a scheme never go this way.
    """
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    recurrent = model._is_stateful or not kinds <= {DynamicLayer, DynamicSlidingWindowLayer}
    ways: list[Way] = [] if recurrent else [walked] if DynamicSlidingWindowLayer in kinds else [branched, walked]
    vocabulary = model.config.get_text_config().vocab_size
    request = ScoreRequest([(7919 * k) % vocabulary for k in range(1, 41)], [6, 20, 40], [(104729 * k) % vocabulary for k in range(1, 4)])
    (reference,) = score(model, [request], range(vocabulary), separate)
    if any(scheme.limit < max(map(len, request.prefixes())) for scheme in schemes):
        return separate
    if schemes:
        positions.forget(model)
    for way in ways:
        (found,) = score(model, [request], range(vocabulary), way)
        distance = float(np.abs(np.exp(found) - np.exp(reference)).sum(-1).max() / 2)
        if distance <= AGREEMENT.get(model.dtype, 0.05):
            return way
        LOG.warning(
            "%s reads of %s are off by %.2g in probability with %s attention: every prefix is read more slowly",
            way.__name__,
            model.config.model_type,
            distance,
            model.config._attn_implementation,
        )
    return separate


def branched(model: Any, grown: Sequence[Tree], candidates: list[int]) -> Iterator[tuple[Read, np.ndarray]]:
    """Trees of about the same length together: one prefill, then all branches in as few forwards as memory allows."""
    waiting = sorted(grown, key=lambda tree: len(tree.trunk))
    while waiting:
        together = [tree for rows, tree in enumerate(waiting, 1) if _fits(rows, len(tree.trunk), len(waiting[0].trunk))]
        yield from _branched(model, together, candidates)
        waiting = waiting[len(together) :]


def _fits(rows: int, longest: int, shortest: int) -> bool:
    return rows == 1 or (longest <= shortest * PADDING and rows * longest <= TOKENS and rows * longest**2 <= PAIRS)


def _branched(model: Any, grown: Sequence[Tree], candidates: list[int]) -> Iterator[tuple[Read, np.ndarray]]:
    """Trunks are padded at their right end, which causal attention never looks at; branches stand at the right ends of slots of one width."""
    width, rows = max(len(tree.trunk) for tree in grown), len(grown)
    slot = max(len(branch.suffix) for tree in grown for branch in tree.branches)
    trunks = torch.tensor([tree.trunk + [0] * (width - len(tree.trunk)) for tree in grown], dtype=torch.long, device=model.device)
    cache = DynamicCache(config=model.config)
    for chunk in _chunks(trunks, width):
        model(input_ids=chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
    # The most tokens n with rows * n * (width + n) <= PAIRS.
    n = min(TOKENS // rows, (math.isqrt(width**2 + 4 * PAIRS // rows) - width) // 2)
    per_forward = max(1, n // slot)
    nothing = Branch((-1, -1), 0, [0])
    for start in range(0, max(len(tree.branches) for tree in grown), per_forward):
        taken = [tree.branches[start : start + per_forward] for tree in grown]
        slots = max(map(len, taken))
        padded = [[*branches, *[nothing] * (slots - len(branches))] for branches in taken]
        logits = _read_slots(model, cache, padded, width, slot)
        for row, branches in zip(_logprobs(logits, candidates), taken, strict=True):
            yield from zip((branch.read for branch in branches), row, strict=False)


def _read_slots(model: Any, cache: DynamicCache, padded: Sequence[Sequence[Branch]], width: int, slot: int) -> torch.Tensor:
    """Logits after each branch, shape (rows, slots, vocabulary); the cache is left as it was."""
    device, slots = model.device, len(padded[0])
    ids = torch.tensor([[i for branch in row for i in [0] * (slot - len(branch.suffix)) + branch.suffix] for row in padded], device=device)
    cuts, first = (
        torch.tensor([[value(branch) for branch in row] for row in padded], device=device).repeat_interleave(slot, 1)
        for value in (lambda branch: branch.cut, lambda branch: slot - len(branch.suffix))
    )
    offset, owner = torch.arange(slot, device=device).repeat(slots), torch.arange(slots, device=device).repeat_interleave(slot)
    sees_trunk = torch.arange(width, device=device) < cuts[:, :, None]
    earlier = (owner[:, None] == owner) & (offset[:, None] >= offset)
    itself = torch.eye(len(offset), dtype=torch.bool, device=device)  # or padding would see nothing at all
    sees_branch = earlier & ((offset >= first)[:, None, :] | itself)
    allowed = torch.cat([sees_trunk, sees_branch], -1)
    bias = torch.zeros(allowed.shape, dtype=model.dtype, device=device).masked_fill_(~allowed, torch.finfo(model.dtype).min)
    logits = model(
        input_ids=ids,
        attention_mask=bias[:, None],
        position_ids=(cuts + offset - first).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=torch.arange(slot - 1, slots * slot, slot, device=device),
    ).logits
    cache.crop(-slots * slot)
    return logits


def walked(model: Any, grown: Sequence[Tree], candidates: list[int]) -> Iterator[tuple[Read, np.ndarray]]:
    """Branch by branch, in the order of their cuts."""
    for tree in grown:
        cache, seen = DynamicCache(config=model.config), 0
        trunk = torch.tensor([tree.trunk], device=model.device)
        for branch in sorted(tree.branches, key=lambda branch: branch.cut):
            for chunk in _chunks(trunk[:, seen : branch.cut], len(tree.trunk)):
                model(input_ids=chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
            seen = branch.cut
            suffix = torch.tensor([branch.suffix], device=model.device)
            logits = model(input_ids=suffix, past_key_values=copy.deepcopy(cache), use_cache=True, logits_to_keep=1).logits
            yield branch.read, _logprobs(logits, candidates)[0, 0]


def separate(model: Any, grown: Sequence[Tree], candidates: list[int]) -> Iterator[tuple[Read, np.ndarray]]:
    """Every prefix from its beginning."""
    for tree in grown:
        for branch in tree.branches:
            prefix = torch.tensor([tree.trunk[: branch.cut] + branch.suffix], device=model.device)
            logits = model(input_ids=prefix, use_cache=False, logits_to_keep=1).logits
            yield branch.read, _logprobs(logits, candidates)[0, 0]


def _chunks(ids: torch.Tensor, longest: int) -> Iterator[torch.Tensor]:
    """Columns of ``ids`` in portions that keep a forward within TOKENS and PAIRS."""
    size = max(1, min(TOKENS, PAIRS // max(1, longest)))
    return (ids[:, start : start + size] for start in range(0, ids.shape[1], size))


def _logprobs(logits: torch.Tensor, candidates: list[int]) -> np.ndarray:
    """Full-vocabulary log-probabilities of the candidates, in float32 at least."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return (logits[..., candidates] - logits.logsumexp(-1, keepdim=True)).cpu().numpy()
