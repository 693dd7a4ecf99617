package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/warrenmq/warren/config"
)

// Settings reads what the container's arguments, environment and files make of the node's settings, as the node in the
// pod would, with dir for the files. Arguments and WARREN_ variables that no setting has are errors, and so are a port
// of the container at which nothing listens and a file that does not come from a ConfigMap.
func Settings(m *Manifests, pod corev1.PodSpec, c corev1.Container, dir string) (config.Config, error) {
	env, err := environment(c)
	if err != nil {
		return config.Config{}, err
	}
	known := map[string]bool{"WARREN_CONFIG": true}
	for _, o := range config.Options() {
		known[o.Env()] = true
	}
	for name := range env {
		if strings.HasPrefix(name, config.EnvPrefix) && !strings.HasPrefix(name, "WARREN_CTL_") && !known[name] {
			return config.Config{}, fmt.Errorf("no setting has the variable %s", name)
		}
	}
	flags, err := arguments(c)
	if err != nil {
		return config.Config{}, err
	}
	if file := env["WARREN_CONFIG"]; file != "" {
		text, err := mounted(m, pod, c, file)
		if err != nil {
			return config.Config{}, err
		}
		env["WARREN_CONFIG"] = filepath.Join(dir, "warren.yaml")
		if err := os.WriteFile(env["WARREN_CONFIG"], []byte(text), 0o600); err != nil {
			return config.Config{}, err
		}
	}
	cfg, err := config.Load(config.Sources{Flags: flags, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		return config.Config{}, err
	}
	for _, file := range []string{
		cfg.TLSCertFile, cfg.TLSKeyFile, cfg.TLSCAFile, cfg.ClusterTLSCertFile, cfg.ClusterTLSKeyFile, cfg.ClusterTLSCAFile, cfg.GossipKeyFile, cfg.DefaultPassFile,
	} {
		if file != "" && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(file) }) {
			return config.Config{}, fmt.Errorf("nothing is mounted where %s should be", file)
		}
	}
	return cfg, listening(cfg, c)
}

// listening says which ports of the container are not those of the settings.
func listening(cfg config.Config, c corev1.Container) error {
	addrs := map[string]string{
		"amqp": cfg.AMQPAddr, "http": cfg.HTTPAddr, "amqps": cfg.AMQPSAddr, "https": cfg.HTTPSAddr, "health": cfg.HealthAddr, "metrics": cfg.MetricsAddr, "grpc": cfg.GRPCAddr, "cluster": cfg.ClusterAddr, "gossip": cfg.GossipAddr, "gossip-udp": cfg.GossipAddr,
	}
	for name, p := range portsOf(c) {
		if addr, ok := addrs[name]; !ok || !samePort(addr, p.ContainerPort) {
			return fmt.Errorf("port %s is %d in the container and %q in the settings", name, p.ContainerPort, addr)
		}
	}
	return nil
}

// environment returns the container's variables, with names for values that the machine would fill in.
func environment(c corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			switch from := v.ValueFrom; {
			case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
				value = "warren-0"
			case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
				value = "namespace"
			case from.FieldRef != nil && from.FieldRef.FieldPath == "status.podIP":
				value = "10.1.2.3"
			case from.SecretKeyRef != nil && from.SecretKeyRef.Name != "":
				value = from.SecretKeyRef.Key
			default:
				return nil, fmt.Errorf("variable %s comes from where the check does not look", v.Name)
			}
		}
		// As Kubernetes does it: $(NAME) of a variable that stands before.
		for name, before := range env {
			value = strings.ReplaceAll(value, "$("+name+")", before)
		}
		if strings.Contains(value, "$(") {
			return nil, fmt.Errorf("variable %s: %q names one that does not stand before it", v.Name, value)
		}
		env[v.Name] = value
	}
	return env, nil
}

// arguments returns the flags of the container's command line.
func arguments(c corev1.Container) (map[string]string, error) {
	flags := map[string]string{}
	for i, arg := range c.Args {
		if i == 0 && arg == "serve" {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		known := slices.ContainsFunc(config.Options(), func(o config.Option) bool { return o.Name == name })
		if !ok || !strings.HasPrefix(arg, "--") || !known {
			return nil, fmt.Errorf("argument %q is no setting with a value", arg)
		}
		flags[name] = value
	}
	return flags, nil
}

// mounted returns the text of a file that a ConfigMap brings into the container.
func mounted(m *Manifests, pod corev1.PodSpec, c corev1.Container, file string) (string, error) {
	for _, mount := range c.VolumeMounts {
		if mount.MountPath != filepath.Dir(file) {
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name != mount.Name || v.ConfigMap == nil {
				continue
			}
			for _, config := range m.Configs {
				if text, ok := config.Data[filepath.Base(file)]; ok && config.Name == v.ConfigMap.Name {
					return text, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s is in no ConfigMap that is mounted there", file)
}
