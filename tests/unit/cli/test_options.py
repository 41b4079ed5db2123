"""The command line takes the same words everywhere."""

from __future__ import annotations

import pytest

from omnigraph_ops.cli.call import Parsed
from omnigraph_ops.cli.parsing import parse


def parsed(*words: str) -> Parsed:
    """What a command line says."""
    found = parse(words)
    assert isinstance(found, Parsed)
    return found


@pytest.mark.parametrize("verb", ["optimize", "cleanup", "orphans", "freeze"])
@pytest.mark.parametrize("option", ["--fence", "--keep-writers-away"])
def test_the_fence_has_two_names(verb: str, option: str) -> None:
    assert parsed(verb, "GRAPH", option).options["fence"] is True
    assert parsed(verb, "GRAPH").options["fence"] is False


def test_options_may_stand_between_the_arguments() -> None:
    options = parsed("backup", "GRAPH", "--json", "DEST").options
    assert (options["graph"], options["json"], options["destination"]) == ("GRAPH", True, "DEST")
