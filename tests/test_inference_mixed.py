"""Crossed random intercepts: against lme4 (published and computed values), statsmodels, the analysis of variance, and their invariances."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from midtrace.inference import crossed_intercepts, mixed

# Diameters of the growth inhibition zone, 24 plates x 6 samples (Davies and Goldsmith 1972; data set "Penicillin" of lme4).
DIAMETERS = """
27 23 26 23 23 21 27 23 26 23 23 21 25 21 25 24 24 20 26 23 25 23 23 20 25 22 26 22 23 20 24 22 25 23 22 19 24 20 23 21 22 19 26 22 26 24 24 21
24 21 24 22 22 20 24 21 24 23 22 19 26 23 26 24 24 21 25 22 26 24 24 20 26 24 26 24 25 22 26 23 26 23 23 20 26 23 25 24 24 22 25 22 25 23 23 20
25 21 24 23 23 20 25 22 24 23 23 19 24 21 23 21 21 19 26 23 26 24 24 21 25 21 24 22 22 18 25 22 25 22 22 20 24 21 24 22 24 19 24 21 24 22 21 18
"""
PENICILLIN = np.array(DIAMETERS.split(), dtype=float)
PLATE, SAMPLE = np.repeat(np.arange(24), 6), np.tile(np.arange(6), 24)
ROW = np.arange(1, 145)


def simulated(n, replicates, item, replicate, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    values = 0.2 + rng.normal(0, item, (n, 1)) + rng.normal(0, replicate, (1, replicates)) + rng.normal(size=(n, replicates))
    rows, columns = np.nonzero(rng.random((n, replicates)) >= missing)
    return values[rows, columns], rows, columns


def test_published_fit_of_lme4():
    # lme4's own documentation: intercept 22.9722 (0.8086), standard deviations 0.8467, 1.9316, 0.5499, REML criterion 330.8606.
    fit = crossed_intercepts(PENICILLIN, PLATE, SAMPLE)
    assert fit.status == "ok"
    assert fit.estimate[0] == pytest.approx(22.9722, abs=5e-5)
    assert fit.error[0] == pytest.approx(0.8086, abs=5e-5)
    deviations = np.sqrt([fit.variance_item, fit.variance_replicate, fit.variance_residual])
    np.testing.assert_allclose(deviations, [0.8467, 1.9316, 0.5499], atol=1e-4)
    assert -2 * fit.log_likelihood == pytest.approx(330.8606, abs=5e-5)


# Computed with lme4 1.1-31, R 4.2.2 (bobyqa, rhoend 1e-10): effects, errors, variances (plate, sample, residual), log likelihood.
LME4 = {
    "balanced": ([22.972222222], [0.808573361], [0.716908177, 3.730917588, 0.302415463], -165.430294496),
    "unbalanced": ([22.997995595], [0.795479841], [0.664060394, 3.614285892, 0.266518208], -117.659636842),
    "covariate": ([22.878772230, 0.0261466464], [0.802641970, 0.0157817611], [0.656623625, 3.651260602, 0.271628558], -143.412636147),
}


@pytest.mark.parametrize("case", LME4)
def test_fits_of_lme4(case):
    kept = {"balanced": ROW > 0, "unbalanced": (ROW % 7 != 0) & (ROW % 5 != 1), "covariate": ROW % 7 != 0}[case]
    design = np.column_stack([np.ones(144), (ROW * 37) % 11])[kept] if case == "covariate" else None
    fit = crossed_intercepts(PENICILLIN[kept], PLATE[kept], SAMPLE[kept], design)
    effects, errors, variances, log_likelihood = LME4[case]
    np.testing.assert_allclose(fit.estimate, effects, rtol=1e-6)
    np.testing.assert_allclose(fit.error, errors, rtol=1e-5)
    np.testing.assert_allclose([fit.variance_item, fit.variance_replicate, fit.variance_residual], variances, rtol=1e-4)
    assert fit.log_likelihood == pytest.approx(log_likelihood, abs=1e-7)


@pytest.mark.parametrize(("missing", "replicate"), [(0.0, 0.5), (0.25, 0.5), (0.2, 0.0)])
def test_fits_of_statsmodels(missing, replicate):
    values, items, replicates = simulated(40, 3, 1.0, replicate, missing, seed=3)
    fit = crossed_intercepts(values, items, replicates)
    frame = pd.DataFrame({"y": values, "i": items.astype(str), "r": replicates.astype(str), "g": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its Hessian near zero variances
        oracle = smf.mixedlm("y ~ 1", frame, groups="g", vc_formula={"i": "0 + C(i)", "r": "0 + C(r)"}).fit(reml=True)
    assert oracle.converged
    assert fit.estimate[0] == pytest.approx(oracle.fe_params.iloc[0], abs=1e-4)
    assert fit.error[0] == pytest.approx(oracle.bse_fe.iloc[0], rel=5e-3)
    assert fit.log_likelihood == pytest.approx(oracle.llf, abs=1e-3)
    assert fit.log_likelihood >= oracle.llf - 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_closed_form_and_search_find_the_same_optimum(seed):
    values, items, replicates = simulated(25, 3, [0.0, 1.0][seed % 2], [0.0, 0.4][seed // 2 % 2], seed=seed)
    problem = mixed._Profile.of(values, np.ones((len(values), 1)), items, replicates)
    assert problem.balanced()
    closed, (searched, converged) = mixed._closed_form(problem), mixed._search(problem)
    assert converged
    assert problem.solve(*closed)[3] == pytest.approx(problem.solve(*searched)[3], abs=1e-6)
    np.testing.assert_allclose(np.sqrt(closed), np.sqrt(searched), atol=2e-3)


def test_likelihood_is_that_of_the_multivariate_normal():
    values, items, replicates = simulated(6, 3, 1.0, 0.5, 0.2, seed=1)
    variances = np.array([0.7, 0.3, 1.2])
    same_item, same_replicate = items[:, None] == items, replicates[:, None] == replicates
    covariance = variances[0] * same_item + variances[1] * same_replicate + variances[2] * np.eye(len(values))
    inverse, ones = np.linalg.inv(covariance), np.ones(len(values))
    mean = ones @ inverse @ values / (ones @ inverse @ ones)
    rest = values - mean
    expected = np.linalg.slogdet(covariance)[1] + np.log(ones @ inverse @ ones) + rest @ inverse @ rest + (len(values) - 1) * np.log(2 * np.pi)
    problem = mixed._Profile.of(values, np.ones((len(values), 1)), items, replicates)
    assert problem.criterion(variances) == pytest.approx(expected, abs=1e-9)
    assert problem.mean_variance(variances)[0] == pytest.approx(1 / (ones @ inverse @ ones), abs=1e-12)


def test_degrees_of_freedom_of_balanced_data():
    values, items, replicates = simulated(60, 4, 1.0, 0.4, seed=5)
    fit = crossed_intercepts(values, items, replicates)
    table = values.reshape(60, 4)
    square_i = 4 * table.mean(1).var(ddof=1)
    square_r = 60 * table.mean(0).var(ddof=1)
    rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    square_e = (rest**2).sum() / (59 * 3)
    expected = (square_i + square_r - square_e) ** 2 / (square_i**2 / 59 + square_r**2 / 3 + square_e**2 / (59 * 3))
    assert fit.df[0] == pytest.approx(expected, rel=1e-3)
    assert fit.error[0] == pytest.approx(np.sqrt((square_i + square_r - square_e) / 240), rel=1e-6)


def test_without_replicate_variance_the_limits_are_those_of_item_means():
    # Balanced data with the replicate variance at zero: the mean of item means, t with items - 1 degrees of freedom.
    values, items, replicates = simulated(50, 3, 1.0, 0.0, seed=4)
    fit = crossed_intercepts(values, items, replicates)
    assert fit.status == "singular: replicate variance is 0"
    assert "item intercepts only" in fit.method
    means = values.reshape(50, 3).mean(1)
    assert fit.error[0] == pytest.approx(means.std(ddof=1) / np.sqrt(50), rel=1e-4)
    assert fit.df[0] == pytest.approx(49, rel=1e-3)


def test_invariances():
    values, items, replicates = simulated(30, 3, 0.8, 0.3, 0.15, seed=6)
    fit = crossed_intercepts(values, items, replicates)
    order = np.random.default_rng(0).permutation(len(values))
    named = np.array([f"item {99 - i}" for i in items])
    other = crossed_intercepts(3 * values[order] + 7, named[order], replicates[order])
    assert other.estimate[0] == pytest.approx(3 * fit.estimate[0] + 7, abs=1e-6)
    assert other.error[0] == pytest.approx(3 * fit.error[0], rel=1e-5)
    assert other.variance_item == pytest.approx(9 * fit.variance_item, rel=1e-3)
    assert other.p[0] < fit.p[0]


def test_what_cannot_be_fitted_is_a_status():
    rng = np.random.default_rng(0)
    items, replicates = np.repeat(np.arange(10), 2), np.tile([0, 1], 10)
    cases = {
        "the values do not vary": (np.full(20, 0.5), items, replicates),
        "one replicate": (rng.normal(size=10), np.arange(10), np.zeros(10)),
        "replicates do not differ within any item": (np.repeat(rng.normal(size=10), 2), items, replicates),
        "no item has two rows": (rng.normal(size=10), np.arange(10), np.arange(10) % 2),
        "2 items are too few": (rng.normal(size=4), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])),
    }
    for reason, data in cases.items():
        fit = crossed_intercepts(*data)
        assert fit.status.startswith("fallback: ")
        assert reason in fit.status
        assert fit.method == "least squares, errors clustered by item"
        assert fit.estimate[0] == pytest.approx(data[0].mean())
        assert np.isnan(fit.variance_item)
    one = crossed_intercepts(*cases["one replicate"])
    assert one.error[0] == pytest.approx(cases["one replicate"][0].std(ddof=1) / np.sqrt(10))
    still = crossed_intercepts(*cases["the values do not vary"])
    assert (still.error[0], still.p[0]) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_a_search_that_does_not_converge_is_a_status(monkeypatch):
    monkeypatch.setattr(mixed, "_search", lambda problem: (np.zeros(2), False))
    values, items, replicates = simulated(20, 3, 1.0, 0.3, 0.2)
    fit = crossed_intercepts(values, items, replicates)
    assert fit.status == "fallback: the optimiser did not converge"
    assert np.isfinite(fit.error[0])


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        crossed_intercepts(np.array([1.0, np.nan]), [0, 1], [0, 1])
    with pytest.raises(ValueError, match="3 values"):
        crossed_intercepts(np.zeros(3), [0, 1], [0, 1])
    with pytest.raises(ValueError, match="full rank"):
        crossed_intercepts(np.arange(4.0), [0, 0, 1, 1], [0, 1, 0, 1], np.ones((4, 2)))
