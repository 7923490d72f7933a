"""What bad input meets: one clear sentence."""

import re

import pytest

import dobrushin as db


def check_sentence(call, pattern):
    """The sentence that a call ends with; `pattern` has parts of it, with " .* " between them."""
    with pytest.raises(db.ArgumentError) as caught:
        call()
    sentence = str(caught.value)
    words = [re.escape(part) for part in pattern.split(" .* ")]
    assert re.search(".*".join(words), sentence), sentence
    assert sentence.startswith("The '")
    assert len(sentence) < 300
    assert isinstance(caught.value, ValueError)
