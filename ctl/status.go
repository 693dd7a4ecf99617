package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func statusVerbs(t *tool) []*cobra.Command {
	return []*cobra.Command{t.command(verb{
		use: "status", short: "Show the status of the node: version, memory, disk, files, alarms, listeners, totals",
		run: nodeStatus,
	})}
}

// nodeFigures are what a node tells of itself beside what statusNode has.
type nodeFigures struct {
	PID        string `json:"os_pid"`
	Uptime     int64  `json:"uptime"` // milliseconds
	MemUsed    uint64 `json:"mem_used"`
	MemLimit   uint64 `json:"mem_limit"`
	DiskFree   uint64 `json:"disk_free"`
	DiskLimit  uint64 `json:"disk_free_limit"`
	FilesUsed  uint64 `json:"fd_used"`
	FilesTotal uint64 `json:"fd_total"`
}

func nodeStatus(ctx context.Context, s *session, _ []string) error {
	n, err := s.ownNode(ctx)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	var figures nodeFigures
	var overview struct {
		Totals map[string]int `json:"object_totals"`
	}
	if err := s.get(ctx, path("nodes", n.Name), &raw); err != nil {
		return found(err, noNode([]string{n.Name}))
	}
	if err := json.Unmarshal(raw, &figures); err != nil {
		return errorf(ExitSoftware, "the answer of %s is not understood: %v", s.name, err)
	}
	if err := s.get(ctx, path("overview"), &overview); err != nil {
		return err
	}
	if s.opt.formatter != formatTable {
		out, err := json.Marshal(map[string]any{"node": raw, "totals": overview.Totals})
		if err == nil {
			s.printf("%s\n", out)
		}
		return err
	}
	s.say("Status of node %s ...", n.Name)
	s.printNode(n, &figures, overview.Totals)
	return nil
}

// printNode prints rabbitmqctl's sections.
func (s *session) printNode(n *statusNode, f *nodeFigures, totals map[string]int) {
	section := func(name string, lines ...string) {
		s.printf("%s\n\n", name)
		for _, l := range lines {
			s.printf("%s\n", visible(l))
		}
		s.printf("\n")
	}
	section("Runtime", "OS PID: "+f.PID, fmt.Sprintf("Uptime (seconds): %d", f.Uptime/time.Second.Milliseconds()), fmt.Sprintf("Is under maintenance?: %t", n.Drained),
		"Warren version: "+n.Version, "Node name: "+n.Name, "State: "+n.State)
	alarms := []string{"(none)"}
	if n.MemAlarm {
		alarms = append(alarms[:0], alarmLine(statusAlarm{n.Name, "memory"}))
	}
	if n.DiskAlarm {
		if !n.MemAlarm {
			alarms = alarms[:0]
		}
		alarms = append(alarms, alarmLine(statusAlarm{n.Name, "disk"}))
	}
	section("Alarms", alarms...)
	section("Memory", fmt.Sprintf("Total memory used: %s", inGiB(f.MemUsed)), fmt.Sprintf("Memory high watermark setting: %s", inGiB(f.MemLimit)))
	section("File Descriptors", fmt.Sprintf("Total: %d, limit: %d", f.FilesUsed, f.FilesTotal))
	section("Free Disk Space", "Low free disk space watermark: "+inGiB(f.DiskLimit), "Free disk space: "+inGiB(f.DiskFree))
	section("Totals", fmt.Sprintf("Connection count: %d", totals["connections"]), fmt.Sprintf("Queue count: %d", totals["queues"]))
	lines := make([]string, len(n.Listeners))
	for i, l := range n.Listeners {
		lines[i] = fmt.Sprintf("Interface: %s, port: %d, protocol: %s, purpose: %s", l.Interface, l.Port, l.Protocol, l.Purpose)
	}
	section("Listeners", lines...)
}

// inGiB is a size for people.
func inGiB(bytes uint64) string { return fmt.Sprintf("%.4g GiB", float64(bytes)/(1<<30)) }
