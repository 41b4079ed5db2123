# Airflow with this project inside: the image of every Airflow and Spark service in docker-compose.yaml.
FROM apache/airflow:3.3.2-python3.11

# New volumes take their owner from these folders, so no container has to run as root for it.
USER root
RUN install --directory --owner=airflow --group=root --mode=0700 /auth
USER airflow

WORKDIR /opt/airflow/omnigraph
COPY --chown=airflow:root requirements.txt pyproject.toml README.md LICENSE ./
# The database drivers belong to this image only: on a laptop Airflow runs on SQLite.
COPY --chown=airflow:root stack stack
RUN pip install --no-cache-dir -r requirements.txt -r stack/requirements.txt

COPY --chown=airflow:root omnigraph_ops omnigraph_ops
COPY --chown=airflow:root plugins plugins
COPY --chown=airflow:root dags dags
RUN pip install --no-cache-dir --no-deps . \
    && JAVA_HOME= python -m omnigraph_ops.spark.java /home/airflow
# What writes text indexes as the engine's own Lance does: docs/adr/0012.
ENV OMNIGRAPH_OPS_TEXT_INDEXERS=/home/airflow/text-indexers
RUN omnigraph-ops install-text-indexer --quiet
ENV JAVA_HOME=/home/airflow/java \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/airflow/omnigraph/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False
