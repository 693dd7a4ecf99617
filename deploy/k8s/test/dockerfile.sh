#!/usr/bin/env bash
# dockerfile.sh ARCHIVE [VERSION] builds the image of the Dockerfile with buildah and writes it as a Docker archive, without a registry: the golang image that the
# Dockerfile begins with is stood in for by this machine's Go, a shell and root certificates, under the same name. Go's caches are this machine's.
# It needs root, and buildah and busybox-static of Debian's packages.
set -euo pipefail
archive=$(realpath -m "$1") version=${2:-dev}
cd "$(dirname "$0")/../../.."
dir=$(mktemp -d)
b() { buildah --root "$dir/root" --runroot "$dir/run" --storage-driver vfs "$@"; }
trap 'b rm -a >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT

golang=$(sed -n 's/^FROM \(golang:[^ ]*\) AS .*/\1/p' Dockerfile)
[ -n "$golang" ] || { echo "the Dockerfile begins with no golang image" >&2; exit 1; }
go version | grep -q " go${golang#golang:}" || { echo "this machine has $(go version), the Dockerfile $golang" >&2; exit 1; }
c=$(b from scratch)
m=$(b mount "$c")
mkdir -p "$m/usr/local" "$m/bin" "$m/etc/ssl/certs" "$m/tmp" "$m/go" "$m/root/.cache"
cp -a "$(go env GOROOT)" "$m/usr/local/go"
cp "$(command -v busybox)" "$m/bin/busybox"
ln -s busybox "$m/bin/sh"
cp /etc/ssl/certs/ca-certificates.crt "$m/etc/ssl/certs/"
b config --env PATH=/go/bin:/usr/local/go/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local --workingdir /go "$c"
b commit --rm -q "$c" "docker.io/library/$golang" >/dev/null
b build --pull-never --isolation chroot --network host -v "$(go env GOMODCACHE):/go/pkg/mod" -v "$(go env GOCACHE):/root/.cache/go-build" \
  --build-arg VERSION="$version" -t warren:dockerfile .
rm -f "$archive"
b push -q warren:dockerfile "docker-archive:$archive:docker.io/library/warren:0.1.0"
