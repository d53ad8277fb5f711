#!/bin/bash
# Exit 0: `docker info` and `docker compose version` (2.x) work. Installs and starts what is missing,
# on Debian and as root only, without systemd. Never touches an engine that runs.
set -euo pipefail
plugins=/usr/local/lib/docker/cli-plugins socket=/var/run/docker.sock pidfile=/var/run/docker.pid
log=${DOCKERD_LOG:-/var/log/dockerd.log}
export DEBIAN_FRONTEND=noninteractive
up() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
compose() { docker compose version --short 2>/dev/null | grep -qE '^v?2\.'; }
if up && compose; then exit 0; fi
[ "$(id -u)" = 0 ] || { echo "not root: cannot install or start Docker" >&2; exit 1; }

updated=
update() { [ -n "$updated" ] || apt-get update -qq; updated=1; }
if ! up && ! command -v dockerd >/dev/null; then
  command -v apt-get >/dev/null || { echo "no apt-get: install Docker by hand" >&2; exit 1; }
  mine=
  if [ ! -e /usr/sbin/policy-rc.d ]; then # else the package's own script starts it through init
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && mine=1
  fi
  update && apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null
  [ -z "$mine" ] || rm -f /usr/sbin/policy-rc.d
fi

if ! compose; then # Compose 2 and buildx are in the next Debian; they need nothing but its libc
  work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"/{lists,cache}/partial "$plugins"
  mirror=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/*.sources)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$work/sources.list"
  options=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache::archives=$work/cache" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o APT::Sandbox::User=root -o Acquire::Languages=none)
  apt-get "${options[@]}" update -qq
  (cd "$work" && apt-get "${options[@]}" download -qq docker-compose/trixie docker-buildx/trixie)
  for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/unpacked"; done
  install -m755 "$work"/unpacked/usr/libexec/docker/cli-plugins/* "$plugins/"
fi

if ! up; then
  # A daemon that was killed leaves its pid files, and refuses to start over them.
  alive() { [ -f "$1" ] && grep -qsE '^(dockerd|containerd)$' "/proc/$(cat "$1")/comm" && ! grep -q '^State:.*Z' "/proc/$(cat "$1")/status"; }
  if ! alive "$pidfile"; then
    rm -f "$pidfile" "$socket"
    alive /var/run/docker/containerd/containerd.pid || rm -f /var/run/docker/containerd/containerd.pid
    setsid nohup dockerd >>"$log" 2>&1 </dev/null &
  fi
  for _ in $(seq 150); do up && break; sleep 0.2; done
  up || { tail -5 "$log" >&2; exit 1; }
fi
compose || { echo "Docker runs, Compose 2 does not" >&2; exit 1; }
