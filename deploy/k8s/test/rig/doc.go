// Package rig runs a real Kubernetes of one machine in namespaces of its own: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubelet with containerd, kube-proxy and a DNS server.
//
// [Enter] starts the program again in new mount, process and network namespaces. All that the rig starts lives in them, so
// nothing is left when the program ends, in whatever way: the kernel ends the processes with the process namespace's first
// one, and mounts and interfaces with their namespaces. Only files under the rig's folder stay, and control groups, which
// [Clean] removes. It needs root, and containerd, runc, CNI plugins, iptables, conntrack and etcd of Debian's packages.
package rig
