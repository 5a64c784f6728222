"""The one error that a user's mistake raises, and the mark that studies leave for users to fill in."""

from collections.abc import Iterable

WRITABLE = "a disk with room that may be written; then run again: what was finished is kept"
FILL_IN = "FILL_IN"  # in a study that comes with midtrace: a commit that its user has to choose


class InputError(Exception):
    """Bad input, said in one line: where, which field, which value, what is allowed.

    Parameters
    ----------
    where
        The file (or other place) that holds the mistake.
    field
        Dotted path of the field, or what of the file is wrong.
    problem
        What is wrong, with the value.
    allowed
        What would be right; a collection is listed.
    """

    def __init__(self, where: object, field: str, problem: str, allowed: str | Iterable[object] | None = None):
        self.where, self.field, self.problem = str(where), field, problem
        text = f"{where}: {field}: {problem}"
        if allowed is not None:
            listed = allowed if isinstance(allowed, str) else (", ".join(map(str, allowed)) or "none")
            text += f"; allowed: {listed}"
        super().__init__(" ".join(text.splitlines()))  # what is quoted may hold line breaks


def require_filled(value: object, where: object, field: str, wanted: str) -> None:
    """Refuse a field that still says FILL_IN. Dry runs and plans do without it, jobs do not.

    Raises
    ------
    InputError
        Naming the field and what it has to hold.
    """
    if value == FILL_IN:
        raise InputError(where, field, f"is still {FILL_IN}", f"{wanted}, in a copy of the study or in a second file after --configfile")
