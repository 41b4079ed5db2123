"""Asks a person about a kept plan; leaves their decision in the graph, bound to the digest of what they were shown.

All approvals of a run share one deadline, counted from the start of the run, so that together they
cannot reach into the next night. Nothing is leased or held while a person thinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk.api.datamodels._generated import HITLDetailRequest, HITLUser
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

from omnigraph_airflow import base_path, decisions
from omnigraph_airflow.decisions import ANSWER_WITHIN, Consent, Decision, question_of
from omnigraph_airflow.forms import FORCE
from omnigraph_airflow.graphs import answer_within_of, approvers_of
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink, run_path
from omnigraph_airflow.operators.base import failures_told, kept_plan
from omnigraph_airflow.task_run import airflow_errors, note
from omnigraph_ops.coordination.sealed import plan_path
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.outcomes import Sealable
from omnigraph_ops.quantities import moment
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.views.markdown import body, digest_shown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.storage.store import Storage

BY_ITSELF = frozenset({"scheduled", "asset_triggered"})
"""Runs that nobody starts: nothing in their params is a person's. Any other kind takes a conf from whom it serves."""
LEAST_WAIT = timedelta(minutes=5)
_SOON_US = 60_000_000


def approved(context: Context, storage: Storage, approval: str, digest: str, *, what: str) -> Decision:
    """The answer to the approval task's question, if it allows exactly this plan; `ApprovalMissing` otherwise. Reads.

    A skip that did not travel, a task that somebody marked a success or an XCom is no approval.
    """
    question = question_of(context, approval)
    kept = decisions.read_consent(storage, question)
    decision = kept.decision if kept else None
    why = decisions.refusal(decision, digest)
    if why is None and kept is not None and kept.question != question:
        why = (
            f"the run was cleared or made anew since {approval} was answered; nothing was done; clear that task, too, "
            "to be asked again"
        )
    if decision is None or why:
        raise ApprovalMissing(f"{what} refused: {why}")
    return decision


class ApproveStageOperator(ApprovalOperator):
    """Asks whether a plan may be carried out, unless it does nothing; the graph and its audit log keep the decision.

    The DAG gives it `form_of(stage)` as `params`: some stages have a switch, off by default, for what their plan does
    not do by itself.

    :param stage: name of the stage.
    :param plan: name of the kept plan, as the planning task left it (templated).
    :param answer_within: an answer later than this after the start of the run counts as Reject, whenever Airflow
        hands it over; clearing the task moves no deadline that a question shows. None: what the graphs file says of the
        graph, else 20 hours.
    :param graph: path or URI of the graph (templated).
    :param confirmed: the person who triggered the run confirmed, within bounds (templated).
    :param digest: the plan that this person approved by its digest (templated).
    :param only_confirmed: a run that nobody confirmed stops here, at the preview.
    :param approvers: the users who may answer, or approve in the trigger form; empty: those whom the graphs file
        names for the graph, else everybody who may act on the DAG.
    :param within: how much a confirmation alone covers of a stage with a measure, as `count` and `size`; None: nothing
        (templated).
    :param standing: bounds of the standing approval, or None; of a stage without a measure, whether its routine is
        approved in runs that nobody starts (templated).
    :param force: what the switch starts from (templated).
    """

    template_fields: Sequence[str] = (
        *ApprovalOperator.template_fields,
        *("plan", "graph", "confirmed", "digest", "within", "standing", "force"),
    )
    ui_color = "#fef7e0"
    operator_extra_links = (GraphPageLink(),)

    def __init__(  # noqa: PLR0913 - what a DAG says about one question
        self,
        *,
        stage: str,
        plan: Any,
        answer_within: timedelta | None,
        graph: str = GRAPH,
        confirmed: bool | str = False,
        digest: str | None = None,
        only_confirmed: bool = False,
        approvers: Sequence[str] = (),
        within: Mapping[str, Any] | None = None,
        standing: Any = None,
        force: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(subject="", defaults="Reject", assigned_users=_users(approvers), **kwargs)
        self.stage = planned(stage).name
        self.plan = plan
        self.answer_within = answer_within
        self.graph = graph
        self.confirmed = confirmed
        self.digest = digest
        self.only_confirmed = only_confirmed
        self.named_approvers = self.approvers = tuple(approvers)
        self.within = within
        self.standing = standing
        self.force = force

    def in_advance(self, plan: Sealable, *, confirmed: bool, by: str | None) -> str | None:
        """Who approved this plan before it was made, None when a person has to; `by` started the run. Pure."""
        stage = planned(self.stage)
        return decisions.in_advance(stage, plan, confirmed=confirmed, within=self.within, standing=self.standing, by=by)

    def describe(self, plan: Sealable, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        """Set `subject` and `body`. Pure but for this operator."""
        stage, force, beyond = planned(self.stage), bool(self.force), None
        if stage.switch is not None:
            self.params[FORCE] = force
        if stage.measure is not None:
            bounds = decisions.form_bounds(self.within, confirmed=confirmed) or decisions.bounds_of(self.standing)
            beyond = decisions.outside(stage, plan, bounds) if bounds else None
        question = stage.question(plan, force=force)
        self.subject = question.subject
        self.body = body(
            stage.view(plan), question, digest=plan.digest, answer_by=answer_by, full_plan=full_plan, note=beyond
        )

    def forced(self, answers: Mapping[str, Any]) -> bool:
        """The switch as the person left it; an answer without the form keeps where it started. Pure."""
        return planned(self.stage).switch is not None and answers.get(FORCE, self.force) is True

    def execute(self, context: Context) -> Any:
        """Skip, approve in advance, or ask."""
        with failures_told(context):
            with airflow_errors():
                decided = self._decide(context)
            return decided or super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer before the base class skips what was rejected. Writes."""
        with failures_told(context):
            with airflow_errors():
                # What the base class would refuse only afterwards is no answer.
                self.validate_chosen_options(event.get("chosen_options") or [])
                self.validate_params_input(event.get("params_input") or {})
                decision = self._answer(context, OmnigraphHook(self.graph).get_conn(), event)
            answer = [decisions.APPROVE if decision.approved else decisions.REJECT]
            return super().execute_complete(context, {**event, "chosen_options": answer})

    def _answer(self, context: Context, graph: Graph, event: Mapping[str, Any]) -> Decision:
        """What Airflow's own route recorded about the question of this very task; kept in the graph. Writes.

        Airflow hands the answer over itself, with who gave it: nobody may write what a waiting task goes on with.
        """
        asked = decisions.read_consent(graph.storage, question_of(context, self.task_id))
        if asked is None or asked.attempt != str(context["ti"].id):
            raise ApprovalMissing("what was asked here is not in the graph any more; nothing was done; clear this task")
        user = event.get("responded_by_user") or {}
        decision = Decision(
            chosen_options=tuple(event.get("chosen_options") or ()),
            digest=asked.digest,
            decided_by=_named(str(user["id"]), str(user["name"])) if user else "nobody",
            timed_out=not user,
            void=self._void(graph, asked, event) if user else "",
            force=self.forced(event.get("params_input") or {}),
            decided_at_us=_answered_us(event),
        )
        self._keep(context, graph, asked, decision)
        if decision.void:
            self.log.warning("The answer does not count: %s", decision.void)
        return decision

    def _void(self, graph: Graph, asked: Consent, event: Mapping[str, Any]) -> str:
        """Why a user's answer does not count, although Airflow took it; empty: it counts. Reads."""
        user_id = str(event["responded_by_user"]["id"])
        if late := asked.late(event["responded_at"]):
            return f"{user_id} {late}"
        may = self._who_may(graph)
        return f"{user_id} is not among those who may approve any more" if may and user_id not in may else ""

    def _who_may(self, graph: Graph) -> tuple[str, ...]:
        """Who may answer, by the DAG and by the graphs file as it is now; empty: everybody. Reads."""
        listed = approvers_of(graph.target)
        if not (listed and self.named_approvers):
            return listed or self.named_approvers
        both = tuple(name for name in self.named_approvers if name in listed)
        if not both:
            raise ApprovalMissing(
                f"nobody may approve at {graph.target}: the DAG names {', '.join(self.named_approvers)}, the graphs "
                f"file {', '.join(listed)}; nothing was done; name somebody in both"
            )
        return both

    def _decide(self, context: Context) -> dict[str, Any] | None:
        """The approval that was given in advance; else None, with the question ready to be asked. Writes."""
        graph, stage = OmnigraphHook(self.graph).get_conn(), planned(self.stage)
        plan = kept_plan(context, graph, stage.plan_type, self.plan)
        why_not = stage.nothing_to_do(plan)
        if why_not:
            raise AirflowSkipException(why_not)
        # Only now: a fault of the graphs file stops no run that asks nobody.
        self.approvers = self._who_may(graph)
        self.assigned_users = _users(self.approvers)
        question = question_of(context, self.task_id)
        earlier = decisions.read_consent(graph.storage, question)
        # What a form said was about the plan of its moment: of a run that was cleared, or planned again, it is no more.
        first = not question.cleared and (earlier is None or earlier.digest == plan.digest)
        if earlier is not None and earlier.decision is None and context["ti"].try_number > 1:
            # Airflow 3.3 may end a try whose question was answered, where it hears late that the try began to wait.
            self.log.warning("An earlier try asked, and no answer reached the graph: one that was given does not count")
        asked = decisions.consent_about(context, question, plan.digest)
        confirmed = self._confirmed(context, plan) and first
        stage.check_ready(graph)  # not before a preview, which ends above
        who = self._approved_by(context, plan, confirmed=confirmed, first=first)
        if who:
            return self._approve_in_advance(context, graph, asked, who)
        within = self.answer_within or answer_within_of(graph.target) or ANSWER_WITHIN
        same = earlier if earlier and earlier.digest == plan.digest else None
        until = self._set_deadline(context, plan, within, same)
        full_plan = where_in_full(context, plan)
        self.describe(plan, answer_by=decisions.to_minute(until), full_plan=full_plan, confirmed=confirmed)
        self._refuse_old_question(context, plan.digest)
        # The answer counts for this digest, whatever becomes of the planning task meanwhile.
        decisions.keep_consent(graph.storage, replace(asked, answer_by=until))
        return None

    def _refuse_old_question(self, context: Context, digest: str) -> None:
        """Raise if Airflow would ask about another plan, or not all who may answer: it keeps what is cleared. Writes.

        Raises:
            ApprovalMissing: a person would answer about what they do not see, or could not answer.
        """
        if context["ti"].try_number <= 1:
            return
        text, asked = shown_question(context["ti"].id, self)
        if digest_shown(text) != digest:
            raise ApprovalMissing(
                "this task was cleared, and Airflow goes on showing the question about the plan that it had before; "
                "nothing was done; trigger a new run to be asked about the plan of now"
            )
        if asked and not (self.approvers and asked.issuperset(self.approvers)):
            raise ApprovalMissing(
                f"this task was cleared, and Airflow goes on asking those who might approve before "
                f"({', '.join(sorted(asked))}); nothing was done; trigger a new run to ask those who may approve now"
            )

    def _confirmed(self, context: Context, plan: Sealable) -> bool:
        """Whether a person who may approve confirmed; a skip where only that would let the run go on. Pure."""
        wanted = bool(self.confirmed) and by_hand(context)
        if self.only_confirmed and not wanted:
            raise AirflowSkipException(
                f"previewed, nothing was changed; trigger again with the param confirm, and with "
                f"digest={plan.digest} to apply exactly this plan"
            )
        return wanted and not self.approvers

    def _approved_by(self, context: Context, plan: Sealable, *, confirmed: bool, first: bool) -> str | None:
        """Who approved this plan before it was made, in the params of the run or in the graphs file. Pure."""
        digest = self.digest.strip() if self.digest else None
        if confirmed and digest and digest != plan.digest:
            return None
        if confirmed and digest:
            return f"{triggered_by(context)}, who named the digest"
        by_itself = run_type(context) in BY_ITSELF
        # A form that anybody may fill in is no approver: these have ids, and Airflow tells only a name of who triggered
        # a run. Where there are approvers, they are asked.
        if not by_itself and (self.approvers or not first):
            return None
        return self.in_advance(plan, confirmed=confirmed, by=None if by_itself else triggered_by(context))

    def _approve_in_advance(self, context: Context, graph: Graph, asked: Consent, who: str) -> dict[str, Any]:
        """Record an approval that somebody gave before the run came here. Writes."""
        self.log.info("Approved in advance by %s", who)
        decision = Decision(
            chosen_options=(decisions.APPROVE,),
            digest=asked.digest,
            decided_by=who,
            force=self.forced({}),
            decided_at_us=now_us(),
        )
        self._keep(context, graph, asked, decision)
        return {"chosen_options": [decisions.APPROVE]}

    def _keep(self, context: Context, graph: Graph, asked: Consent, decision: Decision) -> None:
        """Leave an answer where the next task reads it, and in the graph's audit log. Writes."""
        decisions.keep_consent(graph.storage, replace(asked, decision=decision))
        answer = ", ".join(decision.chosen_options) + (" with force" if decision.force else "")
        # An entry has the time at which it was written; this task may go on long after the answer.
        if now_us() - decision.decided_at_us > _SOON_US:
            answer += f", answered at {moment(decision.decided_at_us)}"
        detail = f"{answer}; {decision.void}" if decision.void else answer
        note(context, graph.storage, decision, verb=self.stage, detail=detail)

    def _set_deadline(self, context: Context, plan: Sealable, within: timedelta, earlier: Consent | None) -> datetime:
        """Fix how long the request waits; returns until when. Pure.

        Args:
            plan: nobody is asked for longer than it may be applied: a later Approve would be refused.
            within: how long after the start of the run an answer counts.
            earlier: what an earlier attempt asked about this plan; Airflow goes on showing its text, and its deadline.

        Raises:
            ApprovalMissing: that deadline has passed.
        """
        now = datetime.now(UTC)
        shown = earlier.answer_by if earlier and context["ti"].try_number > 1 else None
        if shown is not None and shown <= now:
            raise ApprovalMissing(
                f"this task was cleared or repeated, and Airflow goes on showing the question with the deadline that "
                f"it had before, {decisions.to_minute(shown)}; nothing was done; trigger a new run to be asked"
            )
        wanted = (context["dag_run"].start_date or now) + within
        # The step behind the question has to begin before the plan expires.
        most = datetime.fromtimestamp(plan.expires_at_us / 1e6, UTC) - LEAST_WAIT
        until = shown or max(min(wanted, most), now + LEAST_WAIT)
        self.response_timeout = until - now
        return until


def _answered_us(event: Mapping[str, Any]) -> int:
    """When the person answered, in microseconds since the epoch; now, where Airflow does not know. Reads the clock."""
    at = event.get("responded_at")
    return min(int(at.timestamp() * 1e6), now_us()) if at else now_us()


def _users(names: Sequence[str]) -> list[Any] | None:
    return [{"id": name, "name": name} for name in names] or None


def where_in_full(context: Context, plan: Sealable) -> str:
    """Markdown that leads to the whole plan: the log of the task that made it, and its file. Reads the config."""
    task = next(iter(context["task"].upstream_task_ids))
    link = f"{base_path()}{run_path(context['dag'].dag_id, context['run_id'])}/tasks/{task}"
    return f"[the log of {task}]({link}) and in `{plan_path(plan.digest)}` of the graph"


def run_type(context: Context) -> str:
    """What started the run, as Airflow's token. Pure."""
    return str(getattr(context["dag_run"].run_type, "value", context["dag_run"].run_type))


def by_hand(context: Context) -> bool:
    """Whether a person triggered this run: only they can have confirmed it. Pure."""
    return run_type(context) == "manual"


def triggered_by(context: Context) -> str:
    """The name of the person who triggered the run, as far as Airflow knows it. Pure."""
    return str(getattr(context["dag_run"], "triggering_user_name", None) or "the person who triggered the run")


def _named(user_id: str, name: str) -> str:
    """A user as the audit log has them: by the id that Airflow compares, which a display name is not. Pure."""
    return user_id if name in {"", user_id} else f"{name} ({user_id})"


def shown_question(ti_id: Any, asking: HITLOperator) -> tuple[str, frozenset[str]]:
    """The body that people see at this task, and the ids of those who may answer; none: all. Writes the question.

    Asks where nothing is shown yet. Airflow keeps the question of a task that is cleared or repeated.
    """
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    shown = SUPERVISOR_COMMS.send(
        CreateHITLDetailPayload(
            ti_id=ti_id,
            options=asking.options,
            subject=asking.subject,
            body=asking.body,
            defaults=asking.defaults,
            params=asking.serialized_params,
            multiple=asking.multiple,
            assigned_users=[HITLUser(**user) for user in asking.assigned_users or []],
        )
    )
    if not isinstance(shown, HITLDetailRequest):
        return "", frozenset()
    return shown.body or "", frozenset(user.id for user in shown.assigned_users or ())
