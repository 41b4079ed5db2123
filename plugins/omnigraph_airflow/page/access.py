"""Who may see and do what, as Airflow's own auth manager says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from fastapi import Depends

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager, ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

SIGNED_IN = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))
"""What every route asks for: somebody who may read what the tasks of a DAG leave. A page is made of just that."""


class Access:
    """What one person may see; a graph is as visible as its nightly DAG."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._manager: BaseAuthManager[BaseUser] = get_auth_manager()

    def sees(self, dag_id: str) -> bool:
        """Whether they may read what the DAG's tasks left. Asks the auth manager."""
        return self._may("GET", DagAccessEntity.XCOM, dag_id)

    def sees_questions(self, dag_id: str) -> bool:
        """Whether they may read the approvals that the DAG asks for. Asks the auth manager."""
        return self._may("GET", DagAccessEntity.HITL_DETAIL, dag_id)

    def triggers(self, dag_id: str) -> bool:
        """Whether they may start a run of the DAG. Asks the auth manager."""
        return self._may("POST", DagAccessEntity.RUN, dag_id)

    def _may(self, method: ResourceMethod, entity: DagAccessEntity, dag_id: str) -> bool:
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        return self._manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=self._user)


def _access(user: GetUserDep) -> Access:
    return Access(user)


AccessDep = Annotated[Access, Depends(_access)]
