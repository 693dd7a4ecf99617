package scale

import (
	"fmt"
	"strings"
	"time"
)

// Tables renders rows as docs/scaling.md has them.
func Tables(rows []Row) string {
	var b strings.Builder
	table := func(title, head string, line func(r Row) string) {
		fmt.Fprintf(&b, "### %s\n\n| nodes | queues | %s |\n|%s\n", title, head, strings.Repeat("---|", strings.Count(head, "|")+3))
		for _, r := range rows {
			fmt.Fprintf(&b, "| %d | %s | %s |\n", r.Nodes, thousands(float64(r.Queues)), line(r))
		}
		b.WriteString("\n")
	}
	table("Idle, per node", "messages/s: membership · pings · queues' heartbeats | + at the catalog's leader | KB/s | CPU ms/s: membership · pings · heartbeats | + at the catalog's leader | replicas | memory GiB", func(r Row) string {
		s := r.steady
		return fmt.Sprintf("%.0f · %s · %s | %s | %s | %s · %s · %s | %s | %s | %.2f",
			s.gossip.messages, thousands(s.pings.messages), thousands(s.beats.messages), thousands(s.catalog.messages), thousands(s.total().bytes/1000),
			millis(s.gossip.cpu), millis(s.pings.cpu), millis(s.beats.cpu), millis(s.catalog.cpu), thousands(s.replicas), s.memory/(1<<30))
	})
	table("Failure of a node and of a zone", "node: elections | half · all have a leader after | messages (of them roll calls) | zone: nodes · elections | half · all after | messages", func(r Row) string {
		return fmt.Sprintf("%s | %s · %s | %s (%s) | %d · %s | %s · %s | %s", thousands(float64(r.node.Orphans)), span(r.node.Median), span(r.node.Last),
			thousands(r.node.Messages), thousands(r.node.Roll), r.zone.Lost, thousands(float64(r.zone.Orphans)), span(r.zone.Median), span(r.zone.Last), thousands(r.zone.Messages))
	})
	table("Rebalancing", "leaders that go home · after | replicas for a new node | GB | after | declarations/s at most", func(r Row) string {
		return fmt.Sprintf("%s · %s | %s | %.1f | %s | %.0f", thousands(float64(r.balance.homes)), span(r.balance.homesTime),
			thousands(float64(r.balance.moves)), r.balance.moveBytes/1e9, span(r.balance.movesTime), r.declares)
	})
	table("The first bottleneck", "what takes most of its budget | the next", func(r Row) string {
		a, b := r.uses[0], r.uses[1]
		return fmt.Sprintf("%s, %.0f %% | %s, %.0f %%", a.what, 100*a.share, b.what, 100*b.share)
	})
	return b.String()
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }

func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

// thousands writes a number with separators.
func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
