#!/usr/bin/env bash
# Installs the foreign AMQP clients that the process tests drive: pika from
# Debian's packages and amqplib from npm, in the version of package-lock.json.
# Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")"

packages=()
command -v gcc > /dev/null || packages+=(gcc libc6-dev) # for the race detector
command -v npm > /dev/null || packages+=(nodejs npm)
/usr/bin/python3 -c 'import pika' 2> /dev/null || packages+=(python3-pika)
if [ ${#packages[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
fi

if ! cmp -s node/package-lock.json node/node_modules/.warren-lock; then
  (cd node && npm ci --no-audit --no-fund --loglevel=error)
  cp node/package-lock.json node/node_modules/.warren-lock
fi
