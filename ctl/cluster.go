package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func clusterVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "cluster_status", short: "Show the nodes of the cluster, which of them are running, their versions, alarms and listeners",
		long: "Show the nodes of the cluster, in rabbitmqctl's sections. --formatter json has the same with its names, and\n" +
			"below \"warren\" what RabbitMQ does not have: the catalog's leader and voters, zones and the cluster's level.",
		run: clusterStatus,
	})}
}

// statusNode is a node as the API tells of it.
type statusNode struct {
	Name       string           `json:"name"`
	Running    bool             `json:"running"`
	Drained    bool             `json:"being_drained"`
	Processors int              `json:"processors"`
	MemAlarm   bool             `json:"mem_alarm"`
	DiskAlarm  bool             `json:"disk_free_alarm"`
	Zone       string           `json:"warren_zone"`
	State      string           `json:"warren_state"`
	Version    string           `json:"warren_version"`
	Listeners  []statusListener `json:"warren_listeners"`
}

type statusListener struct {
	Node      string `json:"node"`
	Protocol  string `json:"protocol"`
	Interface string `json:"ip_address"`
	Port      int    `json:"port"`
	Purpose   string `json:"purpose"`
}

// status is the output of cluster_status in JSON, in rabbitmqctl's names.
type status struct {
	Alarms       []statusAlarm             `json:"alarms"`
	Name         string                    `json:"cluster_name"`
	Tags         []string                  `json:"cluster_tags"`
	Cores        map[string]int            `json:"cpu_cores"`
	DiskNodes    []string                  `json:"disk_nodes"`
	FeatureFlags []row                     `json:"feature_flags"`
	Listeners    map[string][]jsonListener `json:"listeners"`
	Maintenance  map[string]string         `json:"maintenance_status"`
	Partitions   map[string][]string       `json:"partitions"`
	RAMNodes     []string                  `json:"ram_nodes"`
	RunningNodes []string                  `json:"running_nodes"`
	Versions     map[string]statusVersion  `json:"versions"`
	Warren       statusCluster             `json:"warren"`
}

type jsonListener struct {
	Interface string `json:"interface"`
	Node      string `json:"node"`
	Port      int    `json:"port"`
	Protocol  string `json:"protocol"`
	Purpose   string `json:"purpose"`
}

type statusAlarm struct {
	Node     string `json:"node"`
	Resource string `json:"resource"` // memory or disk
}

type statusVersion struct {
	Warren string `json:"warren_version"`
}

type statusCluster struct {
	ID     string              `json:"cluster_id"`
	Node   string              `json:"node"`
	Level  int                 `json:"level"`
	Leader string              `json:"catalog_leader"`
	Voters []string            `json:"catalog_voters"`
	Zones  map[string][]string `json:"zones"`
	States map[string]string   `json:"states"`
}

func clusterStatus(ctx context.Context, s *session, _ []string) error {
	var nodes []statusNode
	st := status{
		Alarms: []statusAlarm{}, Tags: []string{}, Cores: map[string]int{}, DiskNodes: []string{}, Listeners: map[string][]jsonListener{},
		Maintenance: map[string]string{}, Partitions: map[string][]string{}, RAMNodes: []string{}, RunningNodes: []string{},
		Versions: map[string]statusVersion{},
	}
	for _, part := range []struct {
		path string
		to   any
	}{{path("warren", "cluster"), &st.Warren}, {path("nodes"), &nodes}, {path("feature-flags"), &st.FeatureFlags}} {
		if err := s.get(ctx, part.path, part.to); err != nil {
			return err
		}
	}
	st.Name, st.Warren.States = st.Warren.ID, map[string]string{}
	for _, n := range nodes {
		st.add(n)
	}
	if s.opt.formatter != formatTable {
		raw, err := json.Marshal(st)
		if err != nil {
			return err
		}
		s.printf("%s\n", raw)
		return nil
	}
	s.say("Cluster status of node %s ...", st.Warren.Node)
	s.printStatus(&st)
	return nil
}

func (st *status) add(n statusNode) {
	st.DiskNodes = append(st.DiskNodes, n.Name)
	st.Warren.States[n.Name] = n.State
	if !n.Running {
		return
	}
	st.RunningNodes = append(st.RunningNodes, n.Name)
	st.Maintenance[n.Name] = "not under maintenance"
	if n.Drained {
		st.Maintenance[n.Name] = "marked for maintenance"
	}
	if n.Processors > 0 {
		st.Cores[n.Name] = n.Processors
	}
	if n.Version != "" {
		st.Versions[n.Name] = statusVersion{n.Version}
	}
	if n.MemAlarm {
		st.Alarms = append(st.Alarms, statusAlarm{n.Name, "memory"})
	}
	if n.DiskAlarm {
		st.Alarms = append(st.Alarms, statusAlarm{n.Name, "disk"})
	}
	for _, l := range n.Listeners {
		st.Listeners[n.Name] = append(st.Listeners[n.Name], jsonListener{l.Interface, l.Node, l.Port, l.Protocol, l.Purpose})
	}
}

// printStatus prints the sections of rabbitmqctl, and one of our own at the end.
func (s *session) printStatus(st *status) {
	section := func(name string, lines ...string) {
		if len(lines) == 0 {
			lines = []string{"(none)"}
		}
		s.printf("%s\n\n", name)
		for _, l := range lines {
			s.printf("%s\n", visible(l))
		}
		s.printf("\n")
	}
	each := func(line func(node string) []string) (all []string) {
		for _, n := range st.DiskNodes {
			all = append(all, line(n)...)
		}
		return all
	}
	total := 0
	for _, n := range st.Cores {
		total += n
	}
	section("Basics", "Cluster name: "+st.Name, fmt.Sprintf("Total CPU cores available cluster-wide: %d", total))
	section("Cluster Tags", st.Tags...)
	section("Disk Nodes", st.DiskNodes...)
	section("Running Nodes", st.RunningNodes...)
	section("Versions", each(func(n string) []string {
		if v, ok := st.Versions[n]; ok {
			return []string{n + ": Warren " + v.Warren}
		}
		return nil
	})...)
	section("CPU Cores", each(func(n string) []string {
		if c, ok := st.Cores[n]; ok {
			return []string{fmt.Sprintf("Node: %s, available CPU cores: %d", n, c)}
		}
		return nil
	})...)
	section("Maintenance status", each(func(n string) []string {
		if m, ok := st.Maintenance[n]; ok {
			return []string{fmt.Sprintf("Node: %s, status: %s", n, m)}
		}
		return nil
	})...)
	var alarms []string
	for _, a := range st.Alarms {
		alarms = append(alarms, alarmLine(a))
	}
	section("Alarms", alarms...)
	section("Network Partitions")
	section("Listeners", each(func(n string) (all []string) {
		for _, l := range st.Listeners[n] {
			all = append(all, fmt.Sprintf("Node: %s, interface: %s, port: %d, protocol: %s, purpose: %s", n, l.Interface, l.Port, l.Protocol, l.Purpose))
		}
		return all
	})...)
	var flags []string
	for _, f := range st.FeatureFlags {
		flags = append(flags, fmt.Sprintf("Flag: %s, state: %s", cell(f["name"]), cell(f["state"])))
	}
	section("Feature flags", flags...)
	section("Catalog", st.catalogLines()...)
}

func alarmLine(a statusAlarm) string {
	return map[string]string{"memory": "Memory alarm", "disk": "Free disk space alarm"}[a.Resource] + " on node " + a.Node
}

// catalogLines are what RabbitMQ's cluster_status does not have.
func (st *status) catalogLines() []string {
	leader := st.Warren.Leader
	if leader == "" {
		leader = "(none)"
	}
	lines := []string{
		"Leader: " + leader, "Voters: " + strings.Join(st.Warren.Voters, ", "), fmt.Sprintf("Level: %d", st.Warren.Level),
	}
	var zones []string
	for z := range st.Warren.Zones {
		if z != "" {
			zones = append(zones, z)
		}
	}
	slices.Sort(zones)
	for _, z := range zones {
		lines = append(lines, fmt.Sprintf("Zone: %s, nodes: %s", z, strings.Join(st.Warren.Zones[z], ", ")))
	}
	for _, n := range st.DiskNodes {
		if state := st.Warren.States[n]; state != "" && state != "regular" {
			lines = append(lines, fmt.Sprintf("Node: %s, state: %s", n, state))
		}
	}
	return lines
}
