#!/bin/bash
# seaweedfs-image.sh chrislusf/seaweedfs:TAG: a stand-in for that image from the program that the embedded S3
# runs, whatever TAG says. It keeps the part of the contract that docker-compose.yml uses: the arguments are
# weed's, its data in /data, wget for the health check.
set -euo pipefail
tag=${1:?image name} python=${CHAOS_PYTHON:-python3}
work=$(mktemp -d /var/tmp/chaos.XXXXXX) && trap 'rm -rf --one-file-system "$work"' EXIT
cp "$("$python" -c 'from dalsegno.ops.embedded.s3 import find_weed; print(find_weed())')" "$work/weed"
cat >"$work/entrypoint.sh" <<'X1'
#!/bin/sh
case "$1" in
mini | server) command=$1 && shift && exec weed -logtostderr=true "$command" -dir=/data "$@" ;;
*) exec weed "$@" ;;
esac
X1
chmod +x "$work/weed" "$work/entrypoint.sh"
cat >"$work/Dockerfile" <<'D'
FROM local/debian:bookworm
RUN apt-get update -q && apt-get install -y -q --no-install-recommends wget && rm -rf /var/lib/apt/lists/* /usr/share/doc && mkdir /data
COPY weed entrypoint.sh /usr/bin/
EXPOSE 8333
VOLUME /data
ENTRYPOINT ["entrypoint.sh"]
D
DOCKER_BUILDKIT=0 docker build --quiet --network host -t "$tag" "$work" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
echo "$tag built, ${SECONDS} s"
