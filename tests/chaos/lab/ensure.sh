#!/bin/bash
# Makes this machine able to run the chaos tests: a Docker engine with Compose, and the images that
# docker-compose.yml and ops/deploy/Dockerfile name. What is there already is left as it is.
#   0  ready        1  not possible here; the last line on standard error says why
# CHAOS_STAND_INS=1 builds the images instead of asking an image registry for them first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
no() { echo "$*" >&2; exit 1; }

"$here/engine.sh" || no "no Docker engine with Compose 2, and none could be installed"

pull_limit_s=${CHAOS_PULL_LIMIT_S:-300}
have() { docker image inspect "$1" >/dev/null 2>&1; }
pull() { [ -z "${CHAOS_STAND_INS:-}" ] && timeout "$pull_limit_s" docker pull --quiet "$1" >/dev/null 2>&1; }

kafka=apache/kafka:${KAFKA_TAG:-4.1.1} prometheus=prom/prometheus:${PROMETHEUS_TAG:-v2.42.0}
seaweedfs=chrislusf/seaweedfs:${SEAWEEDFS_TAG:-4.48}
have python:3.11-slim || pull python:3.11-slim ||
  "$here/bases.sh" python || no "python:3.11-slim: neither pulled nor built"
have "$kafka" || pull "$kafka" ||
  { "$here/bases.sh" debian && "$here/kafka-image.sh" "$kafka"; } || no "$kafka: neither pulled nor built"
have "$prometheus" || pull "$prometheus" ||
  { "$here/bases.sh" debian && "$here/prometheus-image.sh" "$prometheus"; } ||
  no "$prometheus: neither pulled nor built"
have "$seaweedfs" || pull "$seaweedfs" ||
  { "$here/bases.sh" debian && "$here/seaweedfs-image.sh" "$seaweedfs"; } ||
  no "$seaweedfs: neither pulled nor built"
echo "ready: $kafka, $seaweedfs, $prometheus, python:3.11-slim"
