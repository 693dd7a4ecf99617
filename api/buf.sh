#!/usr/bin/env bash
# buf.sh ARG...: runs buf in this folder, in the version below, which npm brings along if it is not there.
set -euo pipefail
cd "$(dirname "$0")"
version=1.75.0
dir=../.run/buf/$version
if [ ! -x $dir/node_modules/.bin/buf ]; then
  mkdir -p $dir
  npm install --prefix $dir --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error @bufbuild/buf@$version > /dev/null
fi
exec $dir/node_modules/.bin/buf "$@"
