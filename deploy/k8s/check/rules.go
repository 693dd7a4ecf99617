package check

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rules says what is wrong with m by the rules of docs/kubernetes.md, nil if nothing.
func Rules(m *Manifests) error {
	r := &rules{m: m}
	r.sets()
	r.services()
	r.budget()
	r.policies()
	r.monitors()
	return errors.Join(r.problems...)
}

type rules struct {
	m        *Manifests
	problems []error
}

func (r *rules) say(ok bool, format string, args ...any) {
	if !ok {
		r.problems = append(r.problems, fmt.Errorf(format, args...))
	}
}

func (r *rules) sets() {
	r.say(len(r.m.Sets) > 0, "there is no StatefulSet")
	for _, s := range r.m.Sets {
		pod := s.Spec.Template
		at := "StatefulSet " + s.Name
		r.say(s.Spec.PodManagementPolicy == "Parallel", "%s: pods do not start in parallel", at)
		r.say(s.Spec.Replicas != nil, "%s: no replicas", at)
		r.say(selects(s.Spec.Selector, pod.Labels), "%s: the selector does not match the pods", at)
		for _, other := range r.m.Sets {
			r.say(other == s || !selects(other.Spec.Selector, pod.Labels), "%s: its pods are those of %s too", at, other.Name)
		}
		r.say(r.service(s.Spec.ServiceName) != nil, "%s: there is no Service %q", at, s.Spec.ServiceName)
		keep := s.Spec.PersistentVolumeClaimRetentionPolicy
		r.say(keep != nil && keep.WhenDeleted == "Retain" && keep.WhenScaled == "Retain", "%s: volumes may be deleted", at)
		r.say(len(s.Spec.VolumeClaimTemplates) > 0, "%s: no volume", at)
		r.pod(at, pod.Spec, s.Spec.VolumeClaimTemplates)
	}
}

func (r *rules) pod(at string, p corev1.PodSpec, claims []corev1.PersistentVolumeClaim) {
	r.say(p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken, "%s: has the token of a service account", at)
	grace := int64(30)
	if p.TerminationGracePeriodSeconds != nil {
		grace = *p.TerminationGracePeriodSeconds
	}
	r.say(grace >= 60, "%s: only %d s to stop", at, grace)
	zone, host := false, false
	for _, c := range p.TopologySpreadConstraints {
		zone = zone || c.TopologyKey == corev1.LabelTopologyZone
		host = host || c.TopologyKey == corev1.LabelHostname
	}
	r.say(zone && host, "%s: not spread over zones and machines", at)
	r.say(p.Affinity != nil && p.Affinity.PodAntiAffinity != nil, "%s: no anti-affinity", at)
	s := p.SecurityContext
	r.say(s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser != 0 && s.FSGroup != nil, "%s: may run as root, or has no fsGroup", at)
	r.say(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "%s: no seccomp profile", at)
	volumes := map[string]bool{}
	for _, c := range claims {
		volumes[c.Name] = true
	}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			r.say(slices.ContainsFunc(r.m.Configs, func(c *corev1.ConfigMap) bool { return c.Name == v.ConfigMap.Name }), "%s: there is no ConfigMap %q", at, v.ConfigMap.Name)
		}
	}
	for _, c := range p.InitContainers {
		r.container(at+", init container "+c.Name, c, volumes)
	}
	for _, c := range p.Containers {
		r.container(at+", container "+c.Name, c, volumes)
		r.life(at+", container "+c.Name, c)
	}
}

func (r *rules) container(at string, c corev1.Container, volumes map[string]bool) {
	_, tag, ok := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	r.say(ok && tag != "" && tag != "latest", "%s: image %q has no fixed tag", at, c.Image)
	s := c.SecurityContext
	r.say(s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem, "%s: can write to its root file system", at)
	r.say(s != nil && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation, "%s: privileges may grow", at)
	r.say(s != nil && s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") && len(s.Capabilities.Add) == 0, "%s: has capabilities", at)
	_, requestCPU := c.Resources.Requests[corev1.ResourceCPU]
	_, requestMemory := c.Resources.Requests[corev1.ResourceMemory]
	_, limitCPU := c.Resources.Limits[corev1.ResourceCPU]
	_, limitMemory := c.Resources.Limits[corev1.ResourceMemory]
	r.say(requestCPU && requestMemory && limitMemory, "%s: requests or memory limit are missing", at)
	r.say(!limitCPU, "%s: a limit of processor time holds up syncs and heartbeats", at)
	for _, m := range c.VolumeMounts {
		r.say(volumes[m.Name], "%s: there is no volume %q", at, m.Name)
		r.say(m.SubPath == "", "%s: %s is mounted by subPath and would never be updated", at, m.MountPath)
	}
}

// life says what is wrong with how a container is watched and stopped.
func (r *rules) life(at string, c corev1.Container) {
	ports := portsOf(c)
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			r.say(false, "%s: no %s probe by HTTP", at, name)
			continue
		}
		want := "/healthz"
		if name == "readiness" {
			want = "/readyz"
		}
		r.say(probe.HTTPGet.Path == want, "%s: the %s probe asks %s", at, name, probe.HTTPGet.Path)
		r.say(open(ports, probe.HTTPGet.Port), "%s: the %s probe asks port %s, which is not there", at, name, probe.HTTPGet.Port.String())
	}
	stop := c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Exec != nil
	r.say(stop && slices.Contains(c.Lifecycle.PreStop.Exec.Command, "drain"), "%s: stops at once while clients are still sent to it", at)
}

// portsOf returns a container's ports by name.
func portsOf(c corev1.Container) map[string]corev1.ContainerPort {
	ports := map[string]corev1.ContainerPort{}
	for _, p := range c.Ports {
		ports[p.Name] = p
	}
	return ports
}

// open tells whether a reference to a port, by name or number, is one of ports.
func open(ports map[string]corev1.ContainerPort, ref intstr.IntOrString) bool {
	if ref.Type == intstr.String {
		_, ok := ports[ref.StrVal]
		return ok
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(ports)), func(p corev1.ContainerPort) bool { return p.ContainerPort == ref.IntVal })
}

func (r *rules) service(name string) *corev1.Service {
	for _, s := range r.m.Services {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (r *rules) services() {
	for _, s := range r.m.Services {
		at := "Service " + s.Name
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			r.say(s.Spec.PublishNotReadyAddresses, "%s: pods do not find each other before they are ready", at)
		} else {
			r.say(!s.Spec.PublishNotReadyAddresses, "%s: sends clients to pods that are not ready", at)
		}
		r.everyPod(at, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			for _, set := range r.m.Sets {
				port, ok := portsOf(set.Spec.Template.Spec.Containers[0])[p.TargetPort.String()]
				r.say(ok, "%s: port %s leads to %s, which %s does not have", at, p.Name, p.TargetPort.String(), set.Name)
				r.say(!ok || protocol(port.Protocol) == protocol(p.Protocol), "%s: port %s is of another protocol than the container's", at, p.Name)
				r.say(!ok || port.ContainerPort == p.Port, "%s: port %s has another number than the container's", at, p.Name)
			}
		}
	}
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// everyPod says which pods are not selected.
func (r *rules) everyPod(at string, selector *metav1.LabelSelector) {
	for _, s := range r.m.Sets {
		r.say(selects(selector, s.Spec.Template.Labels), "%s: does not select the pods of %s", at, s.Name)
	}
}

func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(set))
}

func (r *rules) budget() {
	r.say(len(r.m.Budgets) == 1, "%d PodDisruptionBudgets: two that select one pod forbid all evictions", len(r.m.Budgets))
	for _, b := range r.m.Budgets {
		r.everyPod("PodDisruptionBudget "+b.Name, b.Spec.Selector)
		r.say(b.Spec.MaxUnavailable != nil && b.Spec.MaxUnavailable.String() == "1", "PodDisruptionBudget %s: not one at a time", b.Name)
	}
}

func (r *rules) policies() {
	for _, p := range r.m.Policies {
		at := "NetworkPolicy " + p.Name
		r.everyPod(at, &p.Spec.PodSelector)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				for _, set := range r.m.Sets {
					have, ok := portsOf(set.Spec.Template.Spec.Containers[0])[port.Port.String()]
					r.say(ok, "%s: there is no port %s", at, port.Port.String())
					want := corev1.ProtocolTCP
					if port.Protocol != nil {
						want = *port.Protocol
					}
					r.say(!ok || protocol(have.Protocol) == want, "%s: port %s is of another protocol than the container's", at, port.Port.String())
				}
				if trusted := slices.Contains([]string{"cluster", "gossip", "gossip-udp"}, port.Port.String()); trusted {
					for _, from := range rule.From {
						r.say(from.NamespaceSelector == nil && from.PodSelector != nil && len(from.PodSelector.MatchLabels) > 0, "%s: port %s is open to others than nodes", at, port.Port.String())
					}
					r.say(len(rule.From) > 0, "%s: port %s is open to all", at, port.Port.String())
				}
			}
		}
	}
}

func (r *rules) monitors() {
	for _, m := range r.m.Monitors {
		at, found := "ServiceMonitor "+m.Name, 0
		for _, s := range r.m.Services {
			if selects(&m.Spec.Selector, s.Labels) {
				found++
			}
		}
		r.say(found == 1, "%s: selects %d Services", at, found)
		for _, e := range m.Spec.Endpoints {
			for _, set := range r.m.Sets {
				r.say(e.TargetPort != nil && open(portsOf(set.Spec.Template.Spec.Containers[0]), *e.TargetPort), "%s: asks a port that is not there", at)
			}
		}
	}
}

// samePort tells whether addr (host:port) has this port.
func samePort(addr string, port int32) bool {
	_, text, err := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(text)
	return err == nil && n == int(port)
}
