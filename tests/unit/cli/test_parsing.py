"""A command line that does not hold together is one sentence."""

from __future__ import annotations

import shlex

import pytest
from pytest import CaptureFixture, MonkeyPatch

from omnigraph_ops.cli.call import PROGRAM, Parsed, cli
from omnigraph_ops.cli.parsing import parse
from omnigraph_ops.errors import UsageError


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("completion", "Missing argument 'SHELL'. Choose from: bash, zsh, fish; nothing was done; "),
        ("completion csh", "shell: 'csh' is unknown; choose from bash, zsh, fish; nothing was done; "),
        ("check g h", "too many arguments: h; nothing was done; "),
        ("chekc g", "the verb 'chekc' is unknown; did you mean 'check'?; nothing was done; "),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_help(words: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith("--help` lists what it takes")
    assert str(caught.value).isprintable()


def test_bytes_that_are_no_text_are_refused_wherever_they_stand() -> None:
    with pytest.raises(
        UsageError, match=r"^the argument 'a\\udcff' is not UTF-8; nothing was read or written; give it in UTF-8$"
    ):
        parse(["freeze", "g", "--reason", "a\udcff"])


@pytest.mark.parametrize("verb", list(cli.commands))
def test_a_verb_has_examples_that_fit_the_screen_and_are_accepted(
    verb: str, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert parse([verb, "--help"]) == 0
    shown = capsys.readouterr().out.partition("Examples:")[2].splitlines()
    commands = [shlex.split(line) for line in shown if line.strip()]
    assert commands
    for program, *words in commands:
        parsed = parse(words)
        assert isinstance(parsed, Parsed)
        assert (program, parsed.verb) == (PROGRAM, verb)
