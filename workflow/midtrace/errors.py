"""The one error that a user's mistake raises."""

from collections.abc import Iterable


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
        super().__init__(text)
