package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	peerNodes    = 3
	timeoutStart = 3 * time.Minute
)

// startNATS starts a cluster of NATS servers with JetStream. sync is the sync_interval, "" for the default.
func startNATS(ctx context.Context, binary, dir, sync string) (list, _ []*process, err error) {
	ports, err := freePorts(2 * peerNodes)
	if err != nil {
		return nil, nil, err
	}
	var routes []string
	for n := range peerNodes {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[peerNodes+n]))
	}
	if sync != "" {
		sync = "sync_interval: " + sync
	}
	for n := range peerNodes {
		name := fmt.Sprintf("n%d", n+1)
		home := filepath.Join(dir, name)
		if err := os.MkdirAll(home, 0o755); err != nil {
			return list, nil, err
		}
		conf := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%d\njetstream {\n  store_dir: %q\n  %s\n}\ncluster {\n  name: peers\n  listen: 127.0.0.1:%d\n  routes: [%s]\n}\n",
			name, ports[n], filepath.Join(home, "data"), sync, ports[peerNodes+n], strings.Join(routes, ", "))
		file := filepath.Join(home, "nats.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			return list, nil, err
		}
		p, err := launch(name, home, os.Environ(), binary, "-c", file)
		if err != nil {
			return list, nil, err
		}
		p.url = fmt.Sprintf("nats://127.0.0.1:%d", ports[n])
		list = append(list, p)
	}
	for _, p := range list {
		if err := p.accepts(ctx, strings.TrimPrefix(p.url, "nats://")); err != nil {
			return list, nil, err
		}
	}
	return list, nil, awaitNATS(ctx, list[0].url)
}

// awaitNATS waits until a replicated stream can be made: then the servers have a leader.
func awaitNATS(ctx context.Context, url string) error {
	c, err := natsDriver{}.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		err := c.Declare("first", nil)
		if err == nil {
			return c.Delete("first")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// startRabbitMQ starts a cluster of Debian's RabbitMQ, whose packages are unpacked in root, and its epmd.
// Nothing of the machine's own RabbitMQ is read or changed.
func startRabbitMQ(ctx context.Context, root, dir string) (list, helpers []*process, err error) {
	erlang := filepath.Join(root, "usr", "lib", "erlang", "bin")
	bin := filepath.Join(root, "usr", "lib", "rabbitmq", "bin")
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
	env := []string{
		"PATH=" + erlang + ":/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + dir,
		"ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", ports[0]),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CTL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
	epmd, err := launch("epmd", dir, env, filepath.Join(erlang, "epmd"))
	if err != nil {
		return nil, nil, err
	}
	helpers = append(helpers, epmd)
	for n := range peerNodes {
		name := fmt.Sprintf("rabbit%d@localhost", n+1)
		p, err := launchRabbit(name, filepath.Join(dir, name), bin, env, ports[1+n], ports[1+peerNodes+n])
		if err != nil {
			return list, helpers, err
		}
		list = append(list, p)
		// One after the other: the first makes the cluster, the others join it.
		if err := p.accepts(ctx, fmt.Sprintf("127.0.0.1:%d", ports[1+n])); err != nil {
			return list, helpers, err
		}
	}
	ask := exec.CommandContext(ctx, filepath.Join(bin, "rabbitmqctl"), "-n", list[0].name, "await_online_nodes", fmt.Sprint(peerNodes))
	ask.Env = env
	if out, err := ask.CombinedOutput(); err != nil {
		return list, helpers, fmt.Errorf("rabbitmqctl: %w: %s", err, out)
	}
	return list, helpers, nil
}

func launchRabbit(name, home, bin string, env []string, port, dist int) (*process, error) {
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	in := func(file string) string { return filepath.Join(home, file) }
	var conf strings.Builder
	fmt.Fprintf(&conf, "listeners.tcp.default = 127.0.0.1:%d\nlog.file = false\nlog.console = true\nlog.console.level = warning\n"+
		"cluster_formation.peer_discovery_backend = classic_config\n", port)
	for n := range peerNodes {
		fmt.Fprintf(&conf, "cluster_formation.classic_config.nodes.%d = rabbit%d@localhost\n", n+1, n+1)
	}
	for file, content := range map[string]string{"rabbitmq.conf": conf.String(), "enabled_plugins": "[].\n"} {
		if err := os.WriteFile(in(file), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	p, err := launch(name, home, append([]string{
		// The server replaces its script, so that the process here is the server.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_NODENAME=" + name, fmt.Sprintf("RABBITMQ_DIST_PORT=%d", dist),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + in("data"), "RABBITMQ_LOG_BASE=" + in("logs"), "RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + in("generated"),
	}, env...), filepath.Join(bin, "rabbitmq-server"))
	if err != nil {
		return nil, err
	}
	p.url = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port)
	return p, nil
}
