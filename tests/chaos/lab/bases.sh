#!/bin/bash
# bases.sh debian|python: the stand-in images that others are built on, from Debian packages alone.
# Each carries this machine's certificates, so that a package client inside a build sees what it sees here.
set -euo pipefail
mirror=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/*.sources)
certificates=/etc/ssl/certs/ca-certificates.crt
recipe=$(cat "$0" $certificates | sha256sum | cut -c1-12)
work=$(mktemp -d /var/tmp/chaos.XXXXXX) && trap 'rm -rf --one-file-system "$work"' EXIT
export DEBIAN_FRONTEND=noninteractive
current() { [ "$(docker image inspect -f '{{index .Config.Labels "chaos.recipe"}}' "$1" 2>/dev/null)" = "$recipe" ]; }
build() { # tag, folder with a Dockerfile
  current "$1" && return
  # BuildKit asks a registry about base images; the classic builder takes what is here.
  DOCKER_BUILDKIT=0 docker build --quiet --network host --label "chaos.recipe=$recipe" -t "$1" "$2" >"$work/log" 2>&1 ||
    { tail -20 "$work/log" >&2; exit 1; }
  echo "$1 built, ${SECONDS} s"
}

if ! docker image inspect local/minbase:bookworm >/dev/null 2>&1; then
  command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap >/dev/null; }
  debootstrap --variant=minbase --include=ca-certificates,tzdata,netbase bookworm "$work/root" "$mirror" >"$work/log" 2>&1 ||
    { tail -20 "$work/log" >&2; exit 1; }
  rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* "$work"/root/usr/share/{doc,man,locale,info}/*
  tar -C "$work/root" --numeric-owner -c . | docker import -c 'CMD ["bash"]' - local/minbase:bookworm >/dev/null
  echo "local/minbase:bookworm built, ${SECONDS} s"
fi
mkdir "$work/debian" && cp $certificates "$work/debian/certificates"
cat >"$work/debian/Dockerfile" <<'D'
FROM local/minbase:bookworm
ENV LANG=C.UTF-8
COPY certificates /etc/ssl/certs/ca-certificates.crt
RUN printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\ndisable-pip-version-check = true\nroot-user-action = ignore\n' > /etc/pip.conf
D
build local/debian:bookworm "$work/debian"

case ${1:?debian or python} in
debian) ;;
python)
  mkdir "$work/python" && cat >"$work/python/Dockerfile" <<'D'
FROM local/debian:bookworm
RUN apt-get update -q && apt-get install -y -q --no-install-recommends python3 python3-pip python3-venv && ln -sf python3 /usr/bin/python && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man
CMD ["python3"]
D
  build python:3.11-slim "$work/python" ;;
esac
