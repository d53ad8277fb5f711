#!/bin/bash
# kafka-image.sh apache/kafka:VERSION: a stand-in for that image from what the embedded broker runs on,
# its jars and its Java. It keeps the part of the contract that docker-compose.yml uses: CLUSTER_ID, settings as
# KAFKA_... variables, KAFKA_HEAP_OPTS, KAFKA_JVM_PERFORMANCE_OPTS, user appuser (1000), /var/lib/kafka/data.
set -euo pipefail
tag=${1:?image name} version=${1#*:} python=${CHAOS_PYTHON:-python3}
work=$(mktemp -d /var/tmp/chaos.XXXXXX) && trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work/libs"
"$python" - "$version" "$work" <<'P'
import shutil, sys
from pathlib import Path
from dalsegno.ops.embedded.jars import find_jars
from dalsegno.ops.embedded.java import find_java
for jar in find_jars(sys.argv[1]):
    shutil.copy(jar, Path(sys.argv[2], "libs"))
runtime = Path(find_java().path).resolve().parents[1]
shutil.copytree(runtime, Path(sys.argv[2], "java"))
P
cat >"$work/run" <<'X1'
#!/bin/bash
# KAFKA_LOG_DIRS=/x becomes log.dirs=/x; two underscores stand for one, three for a dash.
set -euo pipefail
config=/opt/kafka/config/server.properties
env | grep -E '^KAFKA_[A-Z_]+=' | grep -vE '^KAFKA_(HEAP_OPTS|JVM_PERFORMANCE_OPTS|OPTS|TAG)=' | while IFS='=' read -r name value; do
  key=$(echo "${name#KAFKA_}" | sed -e 's/___/%/g' -e 's/__/@/g' -e 's/_/./g' -e 's/@/_/g' -e 's/%/-/g' | tr '[:upper:]' '[:lower:]')
  echo "$key=$value"
done >"$config"
java=(/opt/java/bin/java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true
  -Dlog4j2.statusLoggerLevel=OFF -cp '/opt/kafka/libs/*')
"${java[@]}" -Xmx128m -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format --ignore-formatted -t "$CLUSTER_ID" -c "$config"
# shellcheck disable=SC2086
exec "${java[@]}" ${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G} ${KAFKA_JVM_PERFORMANCE_OPTS:-} ${KAFKA_OPTS:-} kafka.Kafka "$config"
X1
chmod +x "$work/run"
cat >"$work/Dockerfile" <<'D'
FROM local/debian:bookworm
RUN useradd -u 1000 -m appuser && mkdir -p /opt/kafka/config /var/lib/kafka/data && chown -R appuser /opt/kafka/config /var/lib/kafka
COPY java /opt/java
COPY libs /opt/kafka/libs
COPY run /etc/kafka/docker/run
USER appuser
EXPOSE 9092
VOLUME /var/lib/kafka/data
CMD ["/etc/kafka/docker/run"]
D
DOCKER_BUILDKIT=0 docker build --quiet -t "$tag" "$work" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
echo "$tag built, ${SECONDS} s"
