package rig

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Addresses of the rig. They are seen inside its namespace only.
const (
	address  = "10.88.0.1"    // of the machine
	pods     = "10.88.1.0/24" // of pods
	services = "10.88.2.0/24" // of Services
	nodeName = "node1"
	token    = "rig" // of the administrator; the API server is reached from inside only
)

// Config says where things are.
type Config struct {
	Dir    string // folder for everything the rig keeps; emptied first
	Kube   string // the binary of ./kube
	Pause  string // the binary of ./pause
	Images []Image
	Log    *slog.Logger
}

// Rig is a running Kubernetes.
type Rig struct {
	dir, kube string
	log       *slog.Logger
	processes []*process
	failed    chan error
	dns       *dnsServer

	REST   *rest.Config
	Client kubernetes.Interface
}

// Start brings Kubernetes up and returns when its machine is ready. What was started is stopped again after an error.
func Start(ctx context.Context, cfg Config) (*Rig, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	r := &Rig{dir: dir, kube: cfg.Kube, log: cfg.Log, failed: make(chan error, 1)}
	r.REST = &rest.Config{Host: "https://" + address + ":6443", BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 50, Burst: 100}
	for _, step := range []struct {
		name string
		do   func(context.Context, Config) error
	}{
		{"folders", r.folders},
		{"network", r.network},
		{"containerd", r.containerd},
		{"control plane", r.controlPlane},
		{"images", r.images},
		{"machine", r.machine},
		{"storage", r.storage},
	} {
		began := time.Now()
		if err := step.do(ctx, cfg); err != nil {
			r.Stop()
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		r.log.Info("up", "part", step.name, "seconds", int(time.Since(began).Seconds()))
	}
	return r, nil
}

// Failed yields the error of a program that ended by itself.
func (r *Rig) Failed() <-chan error { return r.failed }

// Stop stops all programs, the last first.
func (r *Rig) Stop() {
	if r.dns != nil {
		r.dns.close()
	}
	for i := len(r.processes) - 1; i >= 0; i-- {
		r.processes[i].stop()
	}
}

func (r *Rig) folders(context.Context, Config) error {
	for _, dir := range []string{"log", "cert", "cni", "volumes"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o755); err != nil {
			return err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return errors.Join(
		r.write("cert/sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))),
		r.write("cert/sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))),
		r.write("cert/tokens.csv", token+`,admin,admin,"system:masters"`+"\n"),
		r.write("resolv.conf", ""),
		r.write("kubeconfig", fmt.Sprintf(kubeconfig, r.REST.Host, token)),
		r.write("cni/10-pods.conflist", fmt.Sprintf(cniConfig, pods, r.path("ipam"))),
		r.write("containerd.toml", fmt.Sprintf(containerdConfig, r.path("containerd"), r.path("containerd-state"), r.socket(), pauseImage, r.path("cni"))),
		r.write("kubelet.yaml", fmt.Sprintf(kubeletConfig, address, r.socket(), r.path("resolv.conf"))),
	)
}

func (r *Rig) path(name string) string { return filepath.Join(r.dir, name) }
func (r *Rig) socket() string          { return "/run/containerd.sock" } // short: a socket's path has 107 bytes at most
func (r *Rig) write(name, text string) error {
	return os.WriteFile(r.path(name), []byte(text), 0o600)
}

// network gives the namespace an address, and forwarding between pods.
func (r *Rig) network(context.Context, Config) error {
	return errors.Join(
		run("ip", "link", "set", "lo", "up"),
		run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1"),
		run("ip", "addr", "add", address+"/24", "dev", "node0"),
		run("ip", "link", "set", "node0", "up"),
		run("ip", "link", "set", "node1", "up"),
		run("ip", "route", "add", "default", "dev", "node0"),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644),
	)
}

func (r *Rig) containerd(ctx context.Context, _ Config) error {
	if err := r.start("containerd", "containerd", "--config", r.path("containerd.toml")); err != nil {
		return err
	}
	return r.await(ctx, time.Minute, func(context.Context) error { return run("ctr", "-a", r.socket(), "version") })
}

const etcd = "http://127.0.0.1:2379"

func (r *Rig) controlPlane(ctx context.Context, _ Config) (err error) {
	err = r.start("etcd", "etcd", "--data-dir", r.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", "http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	err = r.start("kube-apiserver", r.kube, "kube-apiserver",
		"--etcd-servers="+etcd, "--cert-dir="+r.path("cert/apiserver"),
		"--bind-address="+address, "--advertise-address="+address, "--secure-port=6443", "--service-cluster-ip-range="+services,
		"--service-account-key-file="+r.path("cert/sa.pub"), "--service-account-signing-key-file="+r.path("cert/sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--token-auth-file="+r.path("cert/tokens.csv"),
		"--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount", "--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	if r.Client, err = kubernetes.NewForConfig(r.REST); err != nil {
		return err
	}
	err = r.await(ctx, 5*time.Minute, func(ctx context.Context) error {
		return r.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	return errors.Join(
		r.start("kube-controller-manager", r.kube, "kube-controller-manager", "--kubeconfig="+r.path("kubeconfig"), "--leader-elect=false",
			"--service-account-private-key-file="+r.path("cert/sa.key"), "--use-service-account-credentials=false"),
		r.start("kube-scheduler", r.kube, "kube-scheduler", "--kubeconfig="+r.path("kubeconfig"), "--leader-elect=false"),
	)
}

// pauseImage is the image of the process that holds a pod's namespaces.
const pauseImage = "docker.io/library/pause:rig"

func (r *Rig) images(_ context.Context, cfg Config) error {
	list := append([]Image{{Name: pauseImage, Files: map[string]string{"/pause": cfg.Pause}, Entrypoint: []string{"/pause"}, User: "65535:65535"}}, cfg.Images...)
	for i, image := range list {
		if image.Archive != "" {
			if err := r.load(image.Archive); err != nil {
				return err
			}
			continue
		}
		file := r.path(fmt.Sprintf("image-%d.tar", i))
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := errors.Join(image.Write(f), f.Close()); err != nil {
			return err
		}
		if err := errors.Join(r.load(file), os.Remove(file)); err != nil {
			return err
		}
	}
	return nil
}

// load gives containerd an archive.
func (r *Rig) load(file string) error {
	return run("ctr", "-a", r.socket(), "-n", "k8s.io", "images", "import", file)
}

// machine makes the namespace a machine of the cluster.
func (r *Rig) machine(ctx context.Context, _ Config) (err error) {
	if r.dns, err = serveDNS(r.Client, address+":53", r.log); err != nil {
		return err
	}
	err = errors.Join(
		r.start("kubelet", r.kube, "kubelet", "--config="+r.path("kubelet.yaml"), "--kubeconfig="+r.path("kubeconfig"),
			"--root-dir="+r.path("kubelet"), "--cert-dir="+r.path("cert/kubelet"), "--node-ip="+address, "--hostname-override="+nodeName),
		r.start("kube-proxy", r.kube, "kube-proxy", "--kubeconfig="+r.path("kubeconfig"), "--hostname-override="+nodeName, "--proxy-mode=iptables",
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"),
	)
	if err != nil {
		return err
	}
	return r.await(ctx, 3*time.Minute, func(ctx context.Context) error {
		node, err := r.Client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the machine is not ready")
	})
}

// await repeats check until it is nil, the time is over or a program has ended; then the error is check's last.
func (r *Rig) await(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case failed := <-r.failed:
			return failed
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-time.After(300 * time.Millisecond):
		}
	}
}
