"""The command line: verbs, options and help texts that teach."""

from __future__ import annotations

import argparse

from omnigraph_ops import __version__
from omnigraph_ops.cli.address import add_address
from omnigraph_ops.cli.backup_options import add_backup, add_other_verbs
from omnigraph_ops.cli.budget_options import add_budget_options
from omnigraph_ops.cli.consent import add_consent_options, add_yes
from omnigraph_ops.cli.freeze_options import add_fence_options, add_freeze_verbs
from omnigraph_ops.cli.orphans_options import add_orphans_options
from omnigraph_ops.cli.retention_options import add_retention_options
from omnigraph_ops.cli.text_indexer_options import add_text_indexer
from omnigraph_ops.cli.values import Parser, address, count, positive, seconds

_VERBS = """\
verbs, in the order of a night:
  check       what stands between this graph and maintenance (exit 0 clean, 3 pending, 4 needs a person)
  recover     finish crashed optimize runs, the engine's or ours
  health      how every table is doing, 0 to 100, worst first; writes nothing
  plan        what optimize would do; writes nothing
  optimize    fold indexes, rewrite small fragments, publish; rows never change
  repair      preview drifted tables; --confirm publishes verified ones, --force the others too
  cleanup     preview which old versions go; --confirm removes them
  orphans     preview files that nothing refers to; --confirm removes them, --quarantine moves them aside
  expire-rows preview rows that are older than a policy allows; --confirm deletes them
  audit       who approved what, and what came of it
  history     what every run did, run by run or table by table
  calibrate   measure from how many bytes on Spark pays here
  freeze      keep the graph as it is now; files lists what it consists of, unfreeze ends it
  holds       who holds what, why and until when; hold and release are for readers
  backup      copy a frozen cut elsewhere; verify reads a backup again, restore makes a graph of one, backups lists
  unlock      remove a writers' lock that a crash left behind
  graphs      check a graphs file, which gives every graph its nightly DAG, and list it
  settings    what is in force here, and which of it somebody set
  install-text-indexer
              install what writes full-text indexes as the engine's own Lance does
  demo-graph  write a graph to try all this on

A first round on a graph you do not know:
  omnigraph-ops check GRAPH && omnigraph-ops plan GRAPH && omnigraph-ops optimize GRAPH
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of `omnigraph-ops`. Pure."""
    parser: argparse.ArgumentParser = Parser(
        prog="omnigraph-ops",
        description="Unattended, safe maintenance for Omnigraph graphs.",
        epilog=_VERBS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for add in (
        _check,
        _recover,
        _health,
        _plan,
        _optimize,
        _repair,
        _cleanup,
        _orphans,
        _expire_rows,
        _audit,
        _history,
        _calibrate,
        _freezes,
        _backups,
        _unlock,
        _graphs,
        _settings,
        add_text_indexer,
        _demo_graph,
    ):
        add(verbs)
    return parser


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    add_address(parser)
    parser.add_argument("--json", action="store_true", help="print JSON on stdout, with the engine's field names")
    parser.add_argument("--quiet", action="store_true", help="no target line and no progress on stderr")
    return parser


def _check(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _verb(verbs, "check", "Report sidecars, staging files, locks and drift. Exit 0 clean, 3 pending, 4 needs a person.")


def _recover(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "recover", "Finish single-table Optimize sidecars that a crash left behind.")
    parser.add_argument(
        "--grace",
        type=seconds,
        metavar="DURATION",
        help="leave foreign sidecars younger than this alone (default 15m)",
    )


def _health(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Score every table from 0 to 100: small fragments, deleted and unindexed rows, versions, dead bytes."
    _tables(_verb(verbs, "health", f"{text} Reads metadata only."))


def _plan(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "plan", "Show what optimize would do. Writes nothing.")
    _tables(parser)
    add_budget_options(parser)


def _optimize(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "optimize", "Fold indexes, rewrite small fragments and publish. Rows never change.")
    _tables(parser)
    add_budget_options(parser)
    parser.add_argument(
        "--queue",
        action="store_true",
        help="do not wait: start the nightly DAG at OMNIGRAPH_OPS_AIRFLOW_URL (token in OMNIGRAPH_OPS_AIRFLOW_TOKEN)",
    )
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="nobody else publishes meanwhile: compact the internal tables too",
    )
    add_fence_options(
        parser, "hold the engine's schema-apply lock meanwhile, so that its writers are refused (implies --exclusive)"
    )


def _freezes(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add_freeze_verbs(lambda name, text: _verb(verbs, name, text))


def _backups(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add_backup(_verb(verbs, "backup", "Copy the graph, all branches at one cut, to DEST. A killed one is continued."))
    add_other_verbs(verbs)


def _unlock(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "unlock", "Remove a schema-apply lock that a crash left behind. Preview without --confirm.")
    parser.add_argument("--confirm", action="store_true", help="remove it if it is ours")
    add_yes(parser)
    parser.add_argument("--force", action="store_true", help="with --confirm: remove it whoever raised it")


def _repair(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "repair", "Preview drifted tables, or publish their heads. Rewrites no data.")
    _tables(parser)
    add_consent_options(parser, confirm="publish verified maintenance drift", plan="FILE")
    parser.add_argument(
        "--force", action="store_true", help="with --confirm: publish suspicious and unverifiable drift too"
    )
    parser.add_argument(
        "--evidence",
        choices=("counts", "sample", "full"),
        help="how much to read about drifted tables: metadata (default), row ids and a few rows, or every value",
    )


def _cleanup(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(
        verbs,
        "cleanup",
        "Remove old versions. Without --confirm it prints the plan and deletes nothing.",
    )
    _tables(parser)
    parser.add_argument("--keep", type=count, metavar="N", help="keep exactly the N newest versions of each table")
    parser.add_argument(
        "--older-than", type=seconds, metavar="DURATION", help="only versions older than this, e.g. 7d, 12h"
    )
    parser.add_argument(
        "--between-pins",
        action="store_true",
        help="also remove unprotected versions above the oldest version that a branch reads",
    )
    expiry = parser.add_argument_group(
        "snapshot expiry", "A policy of its own, per table, never mixed with --keep or --older-than."
    )
    expiry.add_argument("--expire", action="store_true", help="expire with the defaults below")
    for option, text in (
        ("--retain-min", "the newest N stay whatever their age (default 10, at least 1)"),
        ("--retain-max", "versions beyond the newest N go whatever their age (default: no bound)"),
        ("--expire-limit", "at most N versions of a table go in one run (default 10)"),
    ):
        expiry.add_argument(option, type=count, metavar="N", help=text)
    expiry.add_argument(
        "--time-retained",
        type=seconds,
        metavar="DURATION",
        help="between the two, versions at least this old go (default 1h)",
    )
    parser.add_argument(
        "--allow-young", action="store_true", help="let --older-than or --time-retained be less than an hour"
    )
    add_consent_options(parser, confirm="delete what the plan lists", plan="FILE")
    add_fence_options(parser, "with --confirm: keep engine writers away meanwhile")


def _orphans(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Remove files that no version, branch or tag refers to. Without --confirm it prints the plan."
    add_orphans_options(_verb(verbs, "orphans", text))


def _expire_rows(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Delete rows that are older than a policy allows. Without --confirm it prints the plan."
    add_retention_options(_verb(verbs, "expire-rows", text))


def _calibrate(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Rewrite generated tables in process and on Spark, and say from how many bytes on Spark is faster."
    parser = verbs.add_parser("calibrate", help=text, description=text)
    parser.add_argument("--master", default="local[*]", help="Spark master to submit to (default local[*])")
    parser.add_argument(
        "--scratch", metavar="DIR", help="a folder that the workers reach under the same path (default: temporary)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _audit(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "audit", "Show who approved, rejected and applied which plan, newest last. Reads only.")
    parser.add_argument("--newest", type=count, metavar="N", default=50, help="only the newest N (default 50)")


def _history(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _verb(verbs, "history", "Show the runs of this graph, newest first, one of them, or one table. Reads.")
    _tables(parser)
    parser.add_argument("--run", metavar="ID", help="the whole report of this run")
    parser.add_argument("--last", type=positive, metavar="N", help="only the newest N (default 20)")
    parser.add_argument(
        "--since", type=seconds, metavar="DURATION", help="only runs that began less than this ago, e.g. 30d"
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "markdown", "html", "csv"),
        default="table",
        help="how to print it (default table)",
    )


def _graphs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Check a graphs file and list its graphs. Every fault is named with its line; opens no graph."
    parser = verbs.add_parser("graphs", help=text, description=text)
    parser.add_argument("file", metavar="FILE", nargs="?", help="the YAML file")
    parser.add_argument("--schema", action="store_true", help="print the file's JSON Schema, for editors")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")


def _settings(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Show every setting as this environment makes it, those that are set first."
    parser = verbs.add_parser("settings", help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")


def _demo_graph(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Write a genuine graph into an empty directory."
    parser = verbs.add_parser("demo-graph", help=text, description=text)
    parser.add_argument("graph", type=address, metavar="DIR", help="an empty or new directory")
    parser.add_argument("--stamp", type=int, choices=(3, 6), default=6, help="generation to write (default 6)")
    for option, default, text in (
        ("--types", 3, "node types"),
        ("--loads", 6, "loads, each one fragment per table"),
        ("--rows", 100, "rows of the first node type per load"),
        ("--deletes", 0, "rows deleted per table after the loads"),
        ("--updates", 0, "rows updated per table after the loads"),
        ("--lazy-branches", 0, "branches that nobody wrote to"),
        ("--written-branches", 0, "branches with a fork and a write"),
        ("--seed", 7, "seed of the generated rows"),
    ):
        parser.add_argument(option, type=count, default=default, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--no-vectors", action="store_true", help="leave the vector column null")
    parser.add_argument("--drift", metavar="TABLE_KEY", action="append", default=[], help="leave this table drifted")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        metavar="KEY",
        action="append",
        default=[],
        dest="tables",
        help="only this table, e.g. node:Person; may be repeated",
    )
