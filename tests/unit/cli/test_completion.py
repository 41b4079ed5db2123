"""What the shell may complete."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph_ops.cli import parsing  # noqa: F401 - declares them
from omnigraph_ops.cli.call import COMPLETE, PROGRAM, cli


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("clean", "plain,cleanup"),
        ("cleanup --kee", "plain,--keep"),
        ("cleanup some", "file,some"),
        ("cleanup g --save-plan some", "file,some"),
        ("optimize g --policy ti", "plain,tiered"),
    ],
)
def test_verbs_options_words_and_paths_are_completed(words: str, completed: str) -> None:
    environment = {
        COMPLETE: "bash_complete",
        "COMP_WORDS": "\n".join([PROGRAM, *words.split()]),
        "COMP_CWORD": str(len(words.split())),
        "PYTHONPATH": ":".join(sys.path),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "omnigraph_ops"], env=environment, capture_output=True, text=True, check=False
    )
    assert completed in ran.stdout.splitlines(), ran


def test_every_verb_has_help_in_one_line_and_options_with_help() -> None:
    for name, command in cli.commands.items():
        assert command.short_help, name
        for param in command.params:
            text = getattr(param, "help", "")
            assert text is None or not text or text[0].isupper() or text[0] in "`0123456789", (name, param.name, text)
