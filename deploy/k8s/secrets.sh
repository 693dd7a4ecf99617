#!/bin/sh
# Prints the Secrets that the manifests for kustomize name, with random content: the first user (admin, or the argument), the key of
# gossip, and the nodes' certificate, of an authority whose key is thrown away.
#   deploy/k8s/secrets.sh | kubectl create -f -
# "create" and not "apply": content that is in use is not to be replaced by chance. With cert-manager leave the last one out.
set -eu
umask 077
user=${1:-admin}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
new="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $new -days 3650 -subj "/CN=warren nodes" -keyout ca.key -out ca.crt 2>log || { cat log >&2; exit 1; }
openssl req $new -subj "/CN=warren-node" -keyout tls.key -out tls.csr 2>log || { cat log >&2; exit 1; }
printf 'subjectAltName=DNS:warren-node\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n' >extensions
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions -out tls.crt 2>log || { cat log >&2; exit 1; }
coded() { base64 | tr -d '\n'; }
cat <<END
apiVersion: v1
kind: Secret
metadata:
  name: warren-default-user
type: kubernetes.io/basic-auth
data:
  username: $(printf %s "$user" | coded)
  password: $(openssl rand -hex 16 | tr -d '\n' | coded)
---
apiVersion: v1
kind: Secret
metadata:
  name: warren-gossip
type: Opaque
data:
  keys: $(openssl rand -base64 32 | coded)
---
apiVersion: v1
kind: Secret
metadata:
  name: warren-cluster-tls
type: kubernetes.io/tls
data:
  tls.crt: $(coded <tls.crt)
  tls.key: $(coded <tls.key)
  ca.crt: $(coded <ca.crt)
END
