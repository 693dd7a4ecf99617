package rig

// Files of the programs, to be filled in by folders.

const kubeconfig = `apiVersion: v1
kind: Config
current-context: rig
contexts: [{name: rig, context: {cluster: rig, user: admin}}]
clusters: [{name: rig, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: "%s"}}]
`

// Each pod has a link of its own to the machine (ptp), so what pods send each other passes the machine's packet filter, in
// both directions, and Services work between pods without a filter on a bridge.
const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "%s"}}
]}
`

const containerdConfig = `version = 2
root = "%s"
state = "%s"
[grpc]
  address = "%s"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: ["%s"]
clusterDomain: cluster.local
containerRuntimeEndpoint: "unix://%s"
resolvConf: "%s"
evictionHard: {"memory.available": "100Mi", "nodefs.available": "1%%", "imagefs.available": "1%%"}
localStorageCapacityIsolation: false
syncFrequency: 10s
`
