package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are Debian's packages of RabbitMQ, unpacked in root. Those of another Debian than the machine's
// are jailed: they run by chroot, in a mount namespace of their own.
type packages struct {
	root   string
	jailed bool
}

// enter goes into the root $1, with $2 as /data there, and becomes the program behind.
const enter = `mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" && mkdir -p "$1/data" &&
mount --bind "$2" "$1/data" && exec chroot "$1" "${@:3}"`

// command returns what runs a program of the packages, whose path is seen from root; data is the servers' folder.
func (k packages) command(data, program string, args ...string) (string, []string) {
	if !k.jailed {
		return filepath.Join(k.root, program), args
	}
	return "unshare", append([]string{"-m", "--propagation", "private", "bash", "-c", enter, "enter", k.root, data, program}, args...)
}

// seen is a path inside the servers' folder as servers see it.
func (k packages) seen(data, path string) string {
	if !k.jailed {
		return path
	}
	return "/data" + strings.TrimPrefix(path, data)
}

const (
	binErlang = "/usr/lib/erlang/bin"
	binRabbit = "/usr/lib/rabbitmq/bin"
)

// rabbit is a cluster of RabbitMQ in the making.
type rabbit struct {
	packages
	data string   // folder of all nodes
	env  []string // of every program
}

// startRabbitMQ starts a cluster of Debian's RabbitMQ, and its epmd. Nothing of the machine's own RabbitMQ is
// read or changed.
func startRabbitMQ(ctx context.Context, from packages, dir string) (list, helpers []*process, err error) {
	r := rabbit{packages: from, data: dir}
	ports, err := freePorts(1 + 2*peerNodes)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ".erlang.cookie"), []byte(rand.Text()), 0o600); err != nil {
		return nil, nil, err
	}
	erlang := binErlang
	if !r.jailed {
		erlang = filepath.Join(r.root, binErlang)
	}
	r.env = []string{
		"PATH=" + erlang + ":/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + r.seen(dir, dir),
		"ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", ports[0]),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CTL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
	epmd, err := r.launch("epmd", dir, nil, filepath.Join(binErlang, "epmd"))
	if err != nil {
		return nil, nil, err
	}
	helpers = append(helpers, epmd)
	for n := range peerNodes {
		name := fmt.Sprintf("rabbit%d@localhost", n+1)
		p, err := r.node(name, filepath.Join(dir, name), ports[1+n], ports[1+peerNodes+n])
		if err != nil {
			return list, helpers, err
		}
		list = append(list, p)
		// One after the other: the first makes the cluster, the others join it. RabbitMQ 4 looks for all of them
		// before it makes one.
		if r.jailed && n < peerNodes-1 {
			continue
		}
		for i, p := range list {
			if err := p.accepts(ctx, fmt.Sprintf("127.0.0.1:%d", ports[1+i])); err != nil {
				return list, helpers, err
			}
		}
	}
	program, args := r.command(dir, filepath.Join(binRabbit, "rabbitmqctl"), "-n", list[0].name, "await_online_nodes", fmt.Sprint(peerNodes))
	ask := exec.CommandContext(ctx, program, args...)
	ask.Env = r.env
	if out, err := ask.CombinedOutput(); err != nil {
		return list, helpers, fmt.Errorf("rabbitmqctl: %w: %s", err, out)
	}
	return list, helpers, nil
}

// launch starts a program of the packages; its output goes to a file in dir.
func (r rabbit) launch(name, dir string, env []string, program string) (*process, error) {
	program, args := r.command(r.data, program)
	return launch(name, dir, append(env, r.env...), program, args...)
}

// node starts one server.
func (r rabbit) node(name, home string, port, dist int) (*process, error) {
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	in := func(file string) string { return r.seen(r.data, filepath.Join(home, file)) }
	var conf strings.Builder
	fmt.Fprintf(&conf, "listeners.tcp.default = 127.0.0.1:%d\nlog.file = false\nlog.console = true\nlog.console.level = warning\n"+
		"cluster_formation.peer_discovery_backend = classic_config\n", port)
	if r.jailed {
		fmt.Fprintf(&conf, "cluster_formation.target_cluster_size_hint = %d\n", peerNodes)
	}
	for n := range peerNodes {
		fmt.Fprintf(&conf, "cluster_formation.classic_config.nodes.%d = rabbit%d@localhost\n", n+1, n+1)
	}
	for file, content := range map[string]string{"rabbitmq.conf": conf.String(), "enabled_plugins": "[].\n"} {
		if err := os.WriteFile(filepath.Join(home, file), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	p, err := r.launch(name, home, []string{
		// The server replaces its script, so that the process here is the server.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_NODENAME=" + name, fmt.Sprintf("RABBITMQ_DIST_PORT=%d", dist),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + in("data"), "RABBITMQ_LOG_BASE=" + in("logs"), "RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + in("generated"),
	}, filepath.Join(binRabbit, "rabbitmq-server"))
	if err != nil {
		return nil, err
	}
	p.url = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port)
	return p, nil
}
