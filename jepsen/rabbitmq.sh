#!/usr/bin/env bash
# rabbitmq.sh DIR: prints the folder in which Debian's packages of RabbitMQ are: "/" where they are
# installed, else DIR, into which they are fetched and unpacked. Nothing is installed and nothing of
# the machine's own configuration is changed; no root is needed.
set -euo pipefail

if [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && [ -x /usr/lib/erlang/bin/epmd ] && [ "${RABBITMQ_FETCH:-}" != 1 ]; then
  echo /
  exit
fi
mkdir -p "$1"
root=$(cd "$1" && pwd)
if [ ! -e "$root/complete" ]; then
  # What rabbitmq-server needs of Erlang, and what that needs beyond a minimal system.
  mapfile -t packages < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    rabbitmq-server | grep -E '^(rabbitmq-server|erlang-[a-z0-9-]+)$' | sort -u)
  mkdir -p "$root/packages"
  (cd "$root/packages" && apt-get download -qq "${packages[@]}")
  for package in "$root"/packages/*.deb; do dpkg -x "$package" "$root"; done
  # Debian's start script of Erlang names the folder that it is to be installed in.
  sed -i "s|/usr/lib/erlang|$root/usr/lib/erlang|g" "$root/usr/lib/erlang/bin/erl"
  touch "$root/complete"
fi
echo "$root"
