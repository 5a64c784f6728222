"""Decomposition tables for readers: CSV in full, LaTeX rounded."""

import math
from pathlib import Path

import polars as pl

from midtrace.tables import whole

ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it stands: every special character escaped, line breaks as spaces."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))


def latex_number(value: float | int | bool | None) -> str:
    """A number for a LaTeX cell: three decimals, integers and truth values as they are, nothing where there is none.

    What three decimals would print as 0.000 or hide (0.00004, 12345.6) keeps three significant digits or loses decimals.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"${value}$" if value < 0 else str(value)
    if not math.isfinite(value):
        return r"$\infty$" if value > 0 else r"$-\infty$" if value < 0 else ""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 5e-4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return rf"${mantissa}\times 10^{{{int(exponent)}}}$"
    text = f"{value:.3f}" if size < 100 else f"{value:.1f}"
    return f"${text}$" if value < 0 else text


def write_csv(frame: pl.DataFrame, path: str | Path) -> None:
    """Write all columns at full precision; an empty table has its header."""
    with whole(path) as temporary:
        temporary.write_text(frame.write_csv(), encoding="utf-8")


def write_tex(frame: pl.DataFrame, path: str | Path) -> None:
    """Write a booktabs longtable (packages ``booktabs``, ``longtable``, ``textcomp``, encoding T1).

    Columns without any value are left out; the method of the intervals goes beneath the table.
    """
    name = Path(path).stem
    methods = list(dict.fromkeys(frame["method"].drop_nulls()))
    columns = [column for column in frame.columns if column != "method" and (frame.is_empty() or frame[column].null_count() < len(frame))]
    aligned = "".join("r" if frame.schema[column].is_numeric() else "l" for column in columns)
    header = " & ".join(latex_escape(column.replace("_", " ")) for column in columns) + r" \\"
    lines = [
        rf"% midtrace, table {name}. Needs \usepackage{{booktabs,longtable}} and \usepackage[T1]{{fontenc}}.",
        rf"\begin{{longtable}}{{@{{}}{aligned}@{{}}}}",
        r"\toprule",
        header,
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
    ]
    for row in frame.select(columns).iter_rows():
        lines.append(" & ".join(latex_escape(value) if isinstance(value, str) else latex_number(value) for value in row) + r" \\")
    if frame.is_empty():
        lines.append(rf"\multicolumn{{{len(columns)}}}{{@{{}}l@{{}}}}{{no rows}} \\")
    lines.append(r"\end{longtable}")
    if methods:
        lines.append(rf"\noindent\footnotesize Intervals: {latex_escape('; '.join(methods))}.\normalsize")
    with whole(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
