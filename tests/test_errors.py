"""Bad input is one line."""

import pytest
from helpers.builders import small_config

from midtrace import config as study_config
from midtrace.errors import InputError


def test_a_message_is_one_line_whatever_it_quotes() -> None:
    error = InputError("file", "column 'a'", "missing", ["b\nc", "d\u2028e"])
    assert str(error) == "file: column 'a': missing; allowed: b c, d e"


def test_a_number_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match=r"inference.margin: is 9+.*a number"):
        study_config.validate(small_config(inference={"margin": int("9" * 400)}), "study.yaml")
