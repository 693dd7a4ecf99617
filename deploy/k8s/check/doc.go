// Package check renders Warren's manifests and finds what is wrong with them, without a cluster: fields that Kubernetes
// does not know, and what deploy/k8s promises (probes, security contexts, selectors that match, ports that are open).
//
// It is a module of its own, so that the broker does not depend on Helm, kustomize and Kubernetes. `make k8s-validate`
// runs its tests, `make k8s-render` writes the files that are made from the chart.
package check
