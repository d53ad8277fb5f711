#!/bin/bash
# prometheus-image.sh prom/prometheus:TAG: a stand-in for that image from Debian's package, whatever TAG says.
# The same paths: /bin/prometheus, /bin/promtool, /etc/prometheus/prometheus.yml, /prometheus.
set -euo pipefail
tag=${1:?image name}
log=$(mktemp) && trap 'rm -f "$log"' EXIT
DOCKER_BUILDKIT=0 docker build --quiet --network host -t "$tag" - >"$log" 2>&1 <<'D' || { tail -20 "$log" >&2; exit 1; }
FROM local/debian:bookworm
RUN apt-get update -q && apt-get install -y -q --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/* /usr/share/doc && mkdir -p /prometheus && chown nobody /prometheus && { [ /bin -ef /usr/bin ] || ln -sf /usr/bin/prometheus /usr/bin/promtool /bin/; }
USER nobody
EXPOSE 9090
VOLUME /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
D
echo "$tag built, ${SECONDS} s"
