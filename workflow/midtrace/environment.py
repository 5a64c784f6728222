"""The environment of jobs: what of the user's session a result could depend on is set, or taken away."""

import locale
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from midtrace.errors import InputError

# Text is UTF-8 and sets have one order, whatever the session says; matplotlib draws to files; packages come from the environment that was chosen.
SET = {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1", "MPLBACKEND": "agg", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# These run the user's code, drop assertions, turn warnings into errors, or change how tables are printed and figures drawn.
REMOVED = ("PYTHONSTARTUP", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONIOENCODING", "MATPLOTLIBRC", "SOURCE_DATE_EPOCH")
REMOVED_PREFIX = "POLARS_FMT_"


def of_jobs(session: Mapping[str, str], library: str) -> dict[str, str]:
    """The variables of a session as jobs get them.

    Parameters
    ----------
    session
        The variables of the user's session. What says where things are (``PATH``, ``HOME``, ``HF_HOME``, proxies, devices) stays; numbers of threads
        are set by Snakemake for each job.
    library
        The folder of the package, first in ``PYTHONPATH``.
    """
    kept = {name: value for name, value in session.items() if name not in REMOVED and not name.startswith(REMOVED_PREFIX)}
    return kept | SET | {"PYTHONPATH": os.pathsep.join(filter(None, [library, session.get("PYTHONPATH")]))}


def in_utf8(encoding: str | None = None) -> None:
    """Start this program again where Python reads files in another encoding than UTF-8: Snakemake opens configs in that of the session.

    Raises
    ------
    InputError
        If this is no command line that could be started again.
    """
    encoding = encoding or locale.getencoding()
    if sys.flags.utf8_mode or encoding.lower().replace("-", "") == "utf8":
        return
    program = Path(sys.argv[0])
    if "snakemake" not in (program.name, program.parent.name) or os.environ.get("PYTHONUTF8") == "1":
        raise InputError("environment", "PYTHONUTF8", f"is not 1, and files would be read as {encoding}", "PYTHONUTF8=1, or a UTF-8 locale")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
