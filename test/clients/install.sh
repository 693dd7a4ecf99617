#!/usr/bin/env bash
# Installs the foreign clients of AMQP and gRPC that the process tests drive, and the browser of the
# page's tests, from Debian's packages and, in the versions of package-lock.json, from
# npm. Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")"

made=() # and removed in the end
trap 'rm -rf "${made[@]}"' EXIT

packages=()
# need FILE PACKAGE...: the packages are missing when there is no such file.
need() {
  compgen -G "$1" > /dev/null || packages+=("${@:2}")
}

need "$(command -v gcc || echo none)" gcc libc6-dev # for the race detector and librabbitmq
need "$(command -v npm || echo none)" nodejs npm
need /usr/lib/python3/dist-packages/pika python3-pika
need /usr/lib/python3/dist-packages/amqp python3-amqp
need /usr/lib/python3/dist-packages/kombu python3-kombu
need /usr/lib/python3/dist-packages/celery python3-celery
need /usr/bin/php php-cli
need /usr/share/php/PhpAmqpLib/autoload.php php-amqplib
need '/usr/share/rubygems-integration/all/gems/bunny-*' ruby-bunny
need /usr/bin/amqp-publish amqp-tools
need "$(command -v javac || echo none)" default-jdk-headless
need /usr/share/java/amqp-client.jar librabbitmq-client-java libslf4j-java
need /usr/lib/python3/dist-packages/grpc python3-grpcio
need /usr/bin/protoc protobuf-compiler
need /usr/bin/grpc_python_plugin protobuf-compiler-grpc
need /usr/include/amqp.h librabbitmq-dev
need /usr/bin/chromium-headless-shell chromium-headless-shell fonts-dejavu-core
need /usr/sbin/haproxy haproxy
if [ ${#packages[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  # No service is started: of haproxy only the program is used.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    made+=("$policy")
  fi
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
fi

# RabbitMQ's command line client of the management API, a single file in the package of its server, which is not installed.
if [ ! -f rabbitmqadmin/rabbitmqadmin ]; then
  work=$(mktemp -d)
  made+=("$work")
  [ -n "$(apt-cache policy rabbitmq-server 2> /dev/null)" ] || apt-get update -qq
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root rabbitmq-server && dpkg-deb --extract rabbitmq-server_*.deb tree)
  mkdir -p rabbitmqadmin
  mv "$work/tree/usr/bin/rabbitmqadmin" rabbitmqadmin/
fi

if ! cmp -s node/package-lock.json node/node_modules/.warren-lock; then
  (cd node && npm ci --no-audit --no-fund --loglevel=error)
  cp node/package-lock.json node/node_modules/.warren-lock
fi
