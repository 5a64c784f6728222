"""Crossed random intercepts of items and replicates by restricted maximum likelihood, at a cost linear in the number of items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

TINY = 1e-7  # a variance ratio below this is zero
LARGEST = 1e4  # of the ratios of standard deviations
METHOD = "crossed random intercepts (item, replicate), REML"


@dataclass(frozen=True)
class CrossedFit:
    """Fixed effects of a fit, each of shape (effects,), and how it went.

    Attributes
    ----------
    estimate, error, low, high, df
        Generalised least squares estimates, standard errors, t limits and their degrees of freedom (Satterthwaite).
    p
        Two-sided p values.
    variance_item, variance_replicate, variance_residual
        Variance components; NaN where the fallback has none.
    status
        ``ok``; ``singular: ...`` (a component is zero, the residual one where values are sums of item and replicate exactly);
        ``fallback: ...`` (no fit; item means instead).
    method
        What the numbers are, the fallback named.
    log_likelihood
        Restricted log likelihood, NaN for a fallback.
    """

    estimate: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    df: np.ndarray
    p: np.ndarray
    variance_item: float
    variance_replicate: float
    variance_residual: float
    status: str
    method: str
    log_likelihood: float


def crossed_intercepts(
    values: np.ndarray,
    items: Sequence[object] | np.ndarray,
    replicates: Sequence[object] | np.ndarray,
    design: np.ndarray | None = None,
    *,
    weights: np.ndarray | None = None,
    level: float = 0.95,
) -> CrossedFit:
    """Fit y = X b + item intercept + replicate intercept + residual by REML, balanced or not.

    Parameters
    ----------
    values
        Differences of pairs, shape (rows,).
    items, replicates
        Item and replicate of each row.
    design
        Fixed effects X, shape (rows, effects); None for an intercept alone, the mean difference.
    weights
        Weights w of the rows, shape (rows,), that sum to 1: then the estimate is w'y, an estimand fixed beforehand, with its variance w'Vw under
        the fitted model. None: the generalised least squares estimates of b.
    level
        Level of the limits.

    Returns
    -------
    CrossedFit
        A zero component, too few levels, and an optimiser that does not converge are statuses, never exceptions. With ``weights`` there is one
        effect.

    Raises
    ------
    ValueError
        If the arrays do not fit together, a value is not finite, or X is not of full rank.

    Notes
    -----
    With V = s^2 (I + t_i Z_i Z_i' + t_r Z_r Z_r') the restricted likelihood is profiled over b and s^2, which leaves (t_i, t_r) >= 0.
    (I + t_i Z_i Z_i')^-1 = I - Z_i diag(t_i / (1 + t_i n_i)) Z_i' needs sums within items only, computed once; the few replicates enter by
    the Woodbury identity. Equal to statsmodels MixedLM (one group, ``vc_formula``) and lme4, as the tests show. Limits are t with
    Satterthwaite's degrees of freedom: three replicates are few levels, and a normal quantile would be too short. Balanced data have one
    estimate, whatever the weighting. Where y is a sum of an item's and a replicate's effect exactly, the likelihood has no maximum; the
    variances are those of the effects, which are then known.

    References
    ----------
    Bates et al. (2015), Journal of Statistical Software 67(1); Satterthwaite (1946), Biometrics Bulletin 2, 110-114; Giesbrecht and Burns
    (1985), Biometrics 41, 477-486.
    """
    y = np.asarray(values, dtype=float)
    x = np.ones((len(y), 1)) if design is None else np.asarray(design, dtype=float)
    item, replicate = (np.unique(np.asarray(group, dtype=str), return_inverse=True)[1] for group in (items, replicates))
    if not len(y) == len(x) == len(item) == len(replicate) or len(y) == 0:
        raise ValueError(f"{len(y)} values, {len(x)} rows of the design, {len(item)} items, {len(replicate)} replicates")
    if not (np.isfinite(y).all() and np.isfinite(x).all()):
        raise ValueError("a value is not finite")
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise ValueError("the design is not of full rank")
    why = _unfit(y, x, item, replicate)
    additive = None if why else _Additive.of(y, x, item, replicate)
    if additive is not None and additive.free == 0:
        why = "fallback: items and replicates leave nothing to the residual"
    if why:
        return _item_means(y, x, item, weights, level, why)
    if additive is not None and additive.exact:
        return additive.fit(y, item, replicate, weights, level) or _item_means(y, x, item, weights, level, "fallback: the residual variance is 0")
    problem = _Profile.of(y, x, item, replicate)
    ratios, converged = (_closed_form(problem), True) if problem.balanced() else _search(problem)
    if not converged:
        return _item_means(y, x, item, weights, level, "fallback: the optimiser did not converge")
    ratios = np.where(ratios < TINY, 0.0, ratios)
    beta, covariance, scale, criterion = problem.solve(*ratios)
    variances = np.array([*(ratios * scale), scale])
    if weights is None:
        error, df = np.sqrt(np.diag(covariance)), _satterthwaite(problem, variances, problem.mean_variance)
    else:
        squares = _squares(weights, item, replicate)
        beta, error = np.array([weights @ y]), np.sqrt([squares @ variances])
        df = _satterthwaite(problem, variances, lambda at: np.array([squares @ at]))
    zero = [name for name, value in zip(("item", "replicate"), ratios, strict=True) if value == 0]
    status = f"singular: {' and '.join(zero)} variance is 0" if zero else "ok"
    left = [name for name in ("item", "replicate") if name not in zero]
    method = METHOD
    if zero:
        method += f"; fallback: {left[0] + ' intercepts only' if left else 'no random effect'}"
    return _with_limits(beta, error, df, level, tuple(variances), status, method, -criterion / 2)


def _squares(weights: np.ndarray, item: np.ndarray, replicate: np.ndarray) -> np.ndarray:
    """What the item, replicate and residual variance count in the variance of w'y: sums of squares of w, within each first."""
    return np.array([(np.bincount(item, weights) ** 2).sum(), (np.bincount(replicate, weights) ** 2).sum(), (weights**2).sum()])


def _unfit(y: np.ndarray, x: np.ndarray, item: np.ndarray, replicate: np.ndarray) -> str | None:
    """Why the model cannot be fitted to these data; None if it can."""
    rows, n_items, n_replicates = len(y), item.max() + 1, replicate.max() + 1
    if n_items < 3:
        return f"fallback: {n_items} items are too few"
    if n_replicates < 2:
        return "fallback: one replicate, whose items cannot be told from the residual"
    if n_items >= rows:
        return "fallback: no item has two rows, so items cannot be told from the residual"
    if np.linalg.norm(y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) <= 1e-12 * max(1.0, float(np.linalg.norm(y))):
        return "fallback: the values do not vary"
    first = np.zeros(n_items)
    first[item] = y
    if (y == first[item]).all():
        return "fallback: replicates do not differ within any item, so the residual variance is 0"
    return None


@dataclass(frozen=True)
class _Additive:
    """Effects of items and replicates by least squares, y = a_i + b_r + rest, of a design that is constant within items.

    ``free`` counts the rows beyond the effects; ``exact``: the rest is 0 to rounding.
    """

    items: np.ndarray
    replicates: np.ndarray
    design: np.ndarray
    free: int
    exact: bool

    @classmethod
    def of(cls, y: np.ndarray, x: np.ndarray, item: np.ndarray, replicate: np.ndarray) -> "_Additive | None":
        """None where the design varies within an item: then items do not hold its effects."""
        first = np.unique(item, return_index=True)[1]
        if not (x == x[first][item]).all():
            return None
        sizes = np.bincount(item)
        counts = np.zeros((len(sizes), replicate.max() + 1))
        np.add.at(counts, (item, replicate), 1)
        sums = np.bincount(item, y)
        # Items taken out, the replicates' normal equations are left; their rank says how many effects the data tell apart.
        inner = np.diag(counts.sum(0)) - counts.T @ (counts / sizes[:, None])
        right = np.bincount(replicate, y) - counts.T @ (sums / sizes)
        b = np.linalg.lstsq(inner, right, rcond=1e-10)[0]
        a = (sums - counts @ b) / sizes
        rest = y - a[item] - b[replicate]
        rank = int(np.linalg.matrix_rank(inner, tol=1e-10 * len(y)))
        exact = bool(np.linalg.norm(rest) <= 1e-9 * np.linalg.norm(y - y.mean()))
        return cls(a, b, x[first], len(y) - len(sizes) - rank, exact)

    def fit(self, y: np.ndarray, item: np.ndarray, replicate: np.ndarray, weights: np.ndarray | None, level: float) -> CrossedFit | None:
        """The fit in the limit of no residual; None for effects other than a mean."""
        n_items, n_replicates = len(self.items), len(self.replicates)
        if weights is None and self.design.shape[1] > 1:
            return None
        rest = self.items - self.design @ np.linalg.lstsq(self.design, self.items, rcond=None)[0]
        free = np.array([n_items - np.linalg.matrix_rank(self.design), n_replicates - 1])
        deviation = np.array([rest @ rest, ((self.replicates - self.replicates.mean()) ** 2).sum()])
        variances = np.where(deviation > 1e-18 * (y @ y), deviation / free, 0.0)
        if weights is None:
            beta, squares = self.items.mean() + self.replicates.mean(), np.array([1 / n_items, 1 / n_replicates])
        else:
            beta, squares = float(weights @ y), _squares(weights, item, replicate)[:2]
        parts = squares * variances
        df = parts.sum() ** 2 / (parts**2 / free).sum()
        zero = [name for name, value in zip(("item", "replicate"), variances, strict=True) if value == 0]
        status = f"singular: {' and '.join([*zero, 'residual'])} variance is 0"
        method = f"{METHOD}; no residual: variances of the effects themselves"
        return _with_limits(np.array([beta]), np.sqrt([parts.sum()]), np.array([df]), level, (*variances, 0.0), status, method, np.nan)


@dataclass(frozen=True)
class _Profile:
    """Cross products of [X, Z_r, y], overall and within items: all that the likelihood needs."""

    total: np.ndarray
    within: np.ndarray
    sizes: np.ndarray
    n_effects: int
    rows: int

    @classmethod
    def of(cls, y: np.ndarray, x: np.ndarray, item: np.ndarray, replicate: np.ndarray) -> "_Profile":
        columns = np.column_stack([x, replicate[:, None] == np.arange(replicate.max() + 1), y])
        sums = np.zeros((item.max() + 1, columns.shape[1]))
        np.add.at(sums, item, columns)
        sizes = np.bincount(item)
        # Items of one size share a factor t / (1 + t n), so their cross products are added up beforehand.
        distinct = np.unique(sizes)
        within = np.stack([sums[sizes == size].T @ sums[sizes == size] for size in distinct])
        return cls(columns.T @ columns, within, np.column_stack([distinct, [(sizes == size).sum() for size in distinct]]), x.shape[1], len(y))

    def parts(self, t_item: float, t_replicate: float) -> tuple[np.ndarray, float]:
        """[X, y]' H^-1 [X, y] and log det H, with H = I + t_i Z_i Z_i' + t_r Z_r Z_r'."""
        size, count = self.sizes.T
        product = self.total - np.tensordot(t_item / (1 + t_item * size), self.within, axes=1)
        log_det = float((count * np.log1p(t_item * size)).sum())
        p = self.n_effects
        keep = [*range(p), len(product) - 1]
        inner = product[p:-1, p:-1]
        cross = product[p:-1][:, keep]
        core = np.eye(len(inner)) + t_replicate * inner
        reduced = product[np.ix_(keep, keep)] - t_replicate * cross.T @ np.linalg.solve(core, cross)
        return reduced, log_det + float(np.linalg.slogdet(core)[1])

    def mean_squares(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of squares and degrees of freedom of items, replicates and residual about the mean; exact for balanced data."""
        p, (size, count) = self.n_effects, self.sizes.T
        by_replicate, weight = self.total[p:-1, -1], self.total.diagonal()[p:-1]
        center = by_replicate.sum() ** 2 / self.rows
        item = float((self.within[:, -1, -1] / size).sum()) - center
        replicate = float((by_replicate**2 / weight).sum()) - center
        residual = float(self.total[-1, -1]) - center - item - replicate
        n_items, n_replicates = int(count.sum()), len(weight)
        return np.array([item, replicate, residual]), np.array([n_items - 1, n_replicates - 1, self.rows - n_items - n_replicates + 1])

    def balanced(self) -> bool:
        """Whether every item has every replicate once, and the mean is the only effect."""
        p, n_items = self.n_effects, self.sizes[:, 1].sum()
        return p == 1 and self.total[0, 0] == self.rows == self.total[0, 1:-1].sum() and bool((self.within.sum(0)[1:-1, 1:-1] == n_items).all())

    def solve(self, t_item: float, t_replicate: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Effects, their covariance, the residual variance, and -2 x the restricted log likelihood, at given variance ratios."""
        reduced, log_det = self.parts(t_item, t_replicate)
        p, free = self.n_effects, self.rows - self.n_effects
        xx, xy, yy = reduced[:p, :p], reduced[:p, p], reduced[p, p]
        beta = np.linalg.solve(xx, xy)
        scale = max(float(yy - xy @ beta), 1e-300) / free
        criterion = log_det + float(np.linalg.slogdet(xx)[1]) + free * (1 + np.log(2 * np.pi * scale))
        return beta, scale * np.linalg.inv(xx), scale, criterion

    def criterion(self, variances: np.ndarray) -> float:
        """-2 x the restricted log likelihood at (item, replicate, residual) variances, profiled over the effects only."""
        residual = variances[2]
        reduced, log_det = self.parts(variances[0] / residual, variances[1] / residual)
        p, free = self.n_effects, self.rows - self.n_effects
        xx, xy, yy = reduced[:p, :p], reduced[:p, p], reduced[p, p]
        rest = float(yy - xy @ np.linalg.solve(xx, xy))
        return log_det + float(np.linalg.slogdet(xx)[1]) + free * np.log(2 * np.pi * residual) + rest / residual

    def mean_variance(self, variances: np.ndarray) -> np.ndarray:
        """Variances of the effects at (item, replicate, residual) variances."""
        reduced, _ = self.parts(variances[0] / variances[2], variances[1] / variances[2])
        return variances[2] * np.diag(np.linalg.inv(reduced[: self.n_effects, : self.n_effects]))


def _closed_form(problem: _Profile) -> np.ndarray:
    """Variance ratios (item, replicate) of balanced data: the analysis of variance, with mean squares below the residual one pooled with it."""
    squares, df = problem.mean_squares()
    per_level = np.array([len(problem.total) - problem.n_effects - 1, problem.sizes[:, 1].sum()])  # rows per item, per replicate
    best, ratios = np.inf, np.zeros(2)
    for pooled in ((), (0,), (1,), (0, 1)):
        members = [*pooled, 2]
        levels = np.maximum(squares, 0) / np.maximum(df, 1)
        levels[members] = squares[members].sum() / df[members].sum()
        if levels[2] <= 0 or (levels[:2] < levels[2]).any():
            continue
        criterion = float((df * np.log(levels)).sum())
        if criterion < best:
            best, ratios = criterion, (levels[:2] / levels[2] - 1) / per_level
    return ratios


def _search(problem: _Profile) -> tuple[np.ndarray, bool]:
    """Variance ratios (item, replicate) at the optimum; standard deviations are searched, so that zero is a smooth end."""

    def target(deviation: np.ndarray) -> float:
        return problem.solve(*np.square(deviation))[3]

    squares, df = problem.mean_squares()
    residual = max(squares[2] / max(df[2], 1), 1e-3 * squares.sum() / df.sum())
    rows_per_level = problem.rows / (df[:2] + 1)
    start = np.clip(np.sqrt(np.maximum(squares[:2] / df[:2] / residual - 1, 0) / rows_per_level), 0.01, LARGEST)
    options = {"ftol": 1e-13, "gtol": 1e-7}
    found = optimize.minimize(target, start, method="L-BFGS-B", bounds=[(0, LARGEST)] * 2, options=options)
    point, best = _newton(target, found.x, float(found.fun))
    # A component that the likelihood does not need is zero: then the other one is searched alone.
    for index in np.flatnonzero(point < 0.3):
        mask = np.arange(2) != index

        def alone(deviation: float, mask: np.ndarray = mask) -> float:
            return target(deviation * mask)

        end = 2 * point[1 - index] + 1
        only = optimize.minimize_scalar(alone, bounds=(0, end), method="bounded", options={"xatol": 1e-7})
        for deviation in (only.x, 0.0):
            if alone(deviation) <= best + 1e-7:
                point, best = deviation * mask, min(best, alone(deviation))
    # A gradient test that holds at the boundary too: no small step along an axis is better.
    near = [np.clip(point + step * axis, 0, LARGEST) for axis in np.eye(2) for step in (-1e-3, 1e-3)]
    converged = bool(np.isfinite(best)) and point.max() < LARGEST and all(target(step) >= best - 1e-6 for step in near)
    return np.square(point), converged


def _newton(target: Callable[[np.ndarray], float], point: np.ndarray, best: float) -> tuple[np.ndarray, float]:
    """Newton steps from nearby, by central differences, along the coordinates that are not at zero."""
    for _ in range(4):
        free = [index for index in range(2) if point[index] > 1e-3]
        steps = {index: np.eye(2)[index] * 1e-4 * point[index] for index in free}
        ends = {index: (target(point + step), target(point - step)) for index, step in steps.items()}
        width = np.array([1e-4 * point[index] for index in free])
        gradient = np.array([(ends[index][0] - ends[index][1]) for index in free]) / (2 * width)
        hessian = np.diag([(sum(ends[index]) - 2 * best) for index in free] / width**2) if free else np.zeros((0, 0))
        if len(free) == 2:
            corners = sum(s * t * target(point + s * steps[0] + t * steps[1]) for s in (-1, 1) for t in (-1, 1))
            hessian[0, 1] = hessian[1, 0] = corners / (4 * width[0] * width[1])
        if not free or np.linalg.eigvalsh(hessian).min() <= 0:
            break
        moved = point.copy()
        moved[free] -= np.linalg.solve(hessian, gradient)
        value = target(moved) if moved.min() >= 0 else np.inf
        if value > best:
            break
        gain, point, best = best - value, moved, value
        if gain < 1e-12:
            break
    return point, best


def _satterthwaite(problem: _Profile, variances: np.ndarray, variance_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Degrees of freedom 2 v^2 / Var(v) of each effect's variance v, by differentiation over the components that are not zero."""
    free = [int(index) for index in np.flatnonzero(variances > 0)]
    steps = 1e-4 * variances

    def at(moves: dict[int, float]) -> np.ndarray:
        moved = variances.copy()
        for index, times in moves.items():
            moved[index] += times * steps[index]
        return moved

    gradient = np.stack([(variance_of(at({i: 1})) - variance_of(at({i: -1}))) / (2 * steps[i]) for i in free])
    hessian = np.empty((len(free), len(free)))
    for a, i in enumerate(free):
        for b, j in enumerate(free):
            if i == j:
                ends = problem.criterion(at({i: 1})) - 2 * problem.criterion(variances) + problem.criterion(at({i: -1}))
                hessian[a, b] = ends / steps[i] ** 2
            else:
                corners = [problem.criterion(at({i: s, j: t})) * s * t for s in (-1, 1) for t in (-1, 1)]
                hessian[a, b] = sum(corners) / (4 * steps[i] * steps[j])
    variance = variance_of(variances)
    spread = np.einsum("ak,ab,bk->k", gradient, 2 * np.linalg.pinv(hessian), gradient)
    df = np.where(spread > 0, 2 * variance**2 / np.where(spread > 0, spread, 1.0), np.inf)
    return np.maximum(df, 1.0)


def _item_means(y: np.ndarray, x: np.ndarray, item: np.ndarray, weights: np.ndarray | None, level: float, status: str) -> CrossedFit:
    """Least squares with errors clustered by item (for an intercept: nearly the t interval of item means); or w'y, linearised."""
    n_items = item.max() + 1
    if weights is None:
        bread = np.linalg.inv(x.T @ x)
        beta = bread @ x.T @ y
        rows, free, method = x @ bread * (y - x @ beta)[:, None], max(n_items - 1, 1), "least squares, errors clustered by item"
    else:
        root = np.sqrt(weights)[:, None]
        rest = y - x @ np.linalg.lstsq(root * x, root[:, 0] * y, rcond=None)[0]
        beta, rows = np.array([weights @ y]), (weights * rest)[:, None]
        free, method = max(n_items - x.shape[1], 1), "weighted mean, errors clustered by item"
    scores = np.zeros((n_items, rows.shape[1]))
    np.add.at(scores, item, rows)
    error = np.sqrt((scores**2).sum(0) * (n_items / free if n_items > x.shape[1] else np.nan))
    return _with_limits(beta, error, np.full(len(beta), free), level, (np.nan, np.nan, np.nan), status, method, np.nan)


def _with_limits(
    beta: np.ndarray, error: np.ndarray, df: np.ndarray, level: float, variances: tuple, status: str, method: str, log_likelihood: float
) -> CrossedFit:
    half = stats.t.ppf((1 + level) / 2, df) * error
    z = np.divide(np.abs(beta), error, out=np.where(beta == 0, 0.0, np.inf), where=error > 0)
    p = np.where(np.isnan(error), np.nan, 2 * stats.t.sf(z, df))
    item, replicate, residual = map(float, variances)
    return CrossedFit(beta, error, beta - half, beta + half, df, p, item, replicate, residual, status, method, log_likelihood)
