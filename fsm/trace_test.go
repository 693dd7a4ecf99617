package fsm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

var rewrite = flag.Bool("rewrite", false, "write what the traces print into their files")

// TestTraces runs the conversations in testdata/traces: a line of commands, which
// becomes one entry, four dashes, and what came of it. Lines beginning with # are
// comments. With -rewrite the answers are replaced by the present ones.
//
//		settings dlx=NAME|off ttl=MS limit=N levels=N default=N
//		time MS                     clock of the entries that follow
//		publish BODY[/ttl=MS][/prio=N][/refuse=VERDICT] …
//		resend FIRST BODY …         the same with the sequence of the first
//		ack|discard|fail|count IDS[@ATTEMPT] …
//		expire IDS …   heads IDS …   purge UPTO [KEEP …]
//		route ITEM>TARGET,TARGET … or ITEM>NOROUTE
//		in SOURCE FIRST BODY|- …    transfers from a source, - for a withdrawal
//		done TARGET SEQ [WITHDRAWN …]   gone TARGET WATERMARK [WITHDRAWN …]   withdraw TARGET SEQ
//	  release NOROUTE   close
//		restart                     through a manifest
//		state                       prints without an entry
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/traces/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runTrace(t, file) })
	}
}

func runTrace(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := newRig(t)
	var out strings.Builder
	for step := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, want, ok := strings.Cut(step, "\n----")
		if !ok {
			fmt.Fprintf(&out, "%s\n\n", step)
			continue
		}
		var cmds []Command
		got := ""
		for line := range strings.SplitSeq(head, "\n") {
			if !strings.HasPrefix(line, "#") {
				cmds = g.traceLine(line, cmds, &got)
			}
		}
		if len(cmds) > 0 {
			got += printResult(g.apply(cmds...))
		}
		if got = strings.TrimSpace(got); got == "" {
			got = "ok"
		}
		if got != strings.TrimSpace(want) && !*rewrite {
			t.Fatalf("%s\ngot:\n%s\nwant:\n%s", head, got, want)
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n\n", head, got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// traceLine adds the command of one line, or does at once what is no command.
func (g *rig) traceLine(line string, cmds []Command, got *string) []Command {
	g.t.Helper()
	words := strings.Fields(line)
	name, args := words[0], words[1:]
	switch name {
	case "settings":
		return append(cmds, g.traceSettings(args))
	case "time":
		g.time = int64(g.number(args[0]))
	case "publish":
		return append(cmds, g.run(g.traceOps(args)...))
	case "resend":
		return append(cmds, Stream{Origin: Origin{1, 1}, First: g.number(args[0]), Ops: g.traceOps(args[1:])})
	case "ack", "discard", "fail", "count":
		kind := SettleKind(slices.Index([]string{"ack", "discard", "fail", "count"}, name))
		return append(cmds, Return{kind, g.traceRuns(args)})
	case "expire":
		return append(cmds, Expire{g.traceIDs(args)})
	case "heads":
		return append(cmds, DropHeads{g.traceIDs(args)})
	case "purge":
		return append(cmds, g.run(Purge{queue.MessageID(g.number(args[0])), g.traceIDs(args[1:])}))
	case "route":
		return append(cmds, g.traceRoute(args))
	case "in":
		c := TransferIn{Source: Source{Queue: g.number(args[0])}, First: g.number(args[1])}
		for _, body := range args[2:] {
			if body == "-" {
				c.Items = append(c.Items, Transfer{Withdrawn: true})
			} else {
				c.Items = append(c.Items, transfer(body))
			}
		}
		return append(cmds, c)
	case "done":
		return append(cmds, TransferDone{g.number(args[0]), g.number(args[1]), g.numbers(args[2:])})
	case "gone":
		return append(cmds, TargetGone{g.number(args[0]), g.number(args[1]), g.numbers(args[2:])})
	case "withdraw":
		return append(cmds, Withdraw{g.number(args[0]), g.number(args[1])})
	case "release":
		return append(cmds, Release{g.noRoute(args[0])})
	case "close":
		return append(cmds, Close{})
	case "restart":
		m, err := Restore(g.m.Snapshot())
		if err != nil {
			g.t.Fatal(err)
		}
		g.m = m
	case "state":
		*got += g.printState()
	default:
		g.t.Fatalf("no command %q", name)
	}
	return cmds
}

func (g *rig) number(s string) uint64 {
	g.t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func (g *rig) numbers(args []string) (list []uint64) {
	for _, a := range args {
		list = append(list, g.number(a))
	}
	return list
}

func (g *rig) traceSettings(args []string) Command {
	s := g.m.Settings()
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "dlx":
			s.DeadLetter, s.DeadLetterExchange = value != "off", value
		case "ttl":
			s.MessageTTLMillis = n
		case "limit":
			s.DeliveryLimit = n
		case "levels":
			s.MaxPriority = uint8(n)
		case "default":
			s.DefaultPriority = uint8(n)
		default:
			g.t.Fatalf("no setting %q", key)
		}
	}
	return SetSettings{Revision: g.m.SettingsRevision() + 1, Settings: s, Name: "q", VHost: "/"}
}

func (g *rig) traceOps(args []string) (ops []Op) {
	for _, a := range args {
		parts := strings.Split(a, "/")
		p := pub(parts[0])
		for _, option := range parts[1:] {
			key, value, _ := strings.Cut(option, "=")
			switch key {
			case "ttl":
				p.TTLMillis = int64(g.number(value))
			case "prio":
				p.Priority, p.HasPriority = uint8(g.number(value)), true
			case "refuse":
				p.Verdict = Verdict(slices.Index([]string{"", "full", "full-dlx", "outbox", "consumers"}, value))
			default:
				g.t.Fatalf("no option %q", key)
			}
		}
		ops = append(ops, p)
	}
	return ops
}

func (g *rig) traceIDs(args []string) (list []queue.IDRange) {
	for _, a := range args {
		first, last, ok := strings.Cut(a, "-")
		if !ok {
			last = first
		}
		list = append(list, queue.IDRange{First: queue.MessageID(g.number(first)), Last: queue.MessageID(g.number(last))})
	}
	return list
}

func (g *rig) traceRuns(args []string) (runs []Run) {
	for _, a := range args {
		ids, attempt, ok := strings.Cut(a, "@")
		if !ok {
			attempt = "0"
		}
		r := g.traceIDs([]string{ids})[0]
		runs = append(runs, Run{r.First, uint32(r.Last - r.First + 1), uint32(g.number(attempt))})
	}
	return runs
}

var noRoutes = []string{"targets", "disabled", "unrouted", "cycle", "park-unrouted", "park-cycle"}

func (g *rig) noRoute(s string) NoRoute {
	g.t.Helper()
	i := slices.Index(noRoutes, s)
	if i < 0 {
		g.t.Fatalf("no decision %q", s)
	}
	return NoRoute(i)
}

func (g *rig) traceRoute(args []string) (c Route) {
	for _, a := range args {
		item, where, _ := strings.Cut(a, ">")
		r := Routed{Item: OutboxID(g.number(item))}
		if where[0] < '0' || where[0] > '9' {
			r.NoRoute = g.noRoute(where)
		} else {
			for t := range strings.SplitSeq(where, ",") {
				r.Targets = append(r.Targets, g.number(t))
			}
		}
		c.Items = append(c.Items, r)
	}
	return c
}

func printIDs(ranges []queue.IDRange) string {
	var parts []string
	for _, r := range ranges {
		if r.First == r.Last {
			parts = append(parts, fmt.Sprint(r.First))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	return strings.Join(parts, " ")
}

func printResult(r Result) string {
	var b strings.Builder
	for _, s := range r.Streams {
		fmt.Fprintf(&b, "stream up to %d", s.UpTo)
		if s.Gap {
			b.WriteString(", gap")
		}
		for _, o := range s.Outcomes {
			kind := []string{"done", "full", "outbox full", "no consumers", "gone", "purged", "relayed", "catalog too old"}[o.Kind]
			fmt.Fprintf(&b, ", %d %s", o.Seq, kind)
			if o.Kind == Purged {
				fmt.Fprintf(&b, " %d", o.Count)
			}
		}
		b.WriteString("\n")
	}
	for _, s := range r.Transfers {
		fmt.Fprintf(&b, "transfers of %d up to %d", s.Source.Queue, s.UpTo)
		for i, is := range []bool{s.Gap, s.Unknown, s.Gone} {
			if is {
				b.WriteString([]string{", gap", ", unknown", ", gone"}[i])
			}
		}
		if len(s.Withdrawn) > 0 {
			fmt.Fprintf(&b, ", withdrawn %v", s.Withdrawn)
		}
		b.WriteString("\n")
	}
	if r.Enqueued.First <= r.Enqueued.Last {
		fmt.Fprintf(&b, "enqueued %s\n", printIDs([]queue.IDRange{r.Enqueued}))
	}
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, "removed %s\n", printIDs(r.Removed))
	}
	if len(r.Returned) > 0 {
		fmt.Fprintf(&b, "returned %s\n", printIDs(r.Returned))
	}
	if r.OutboxChanged {
		b.WriteString("outbox changed\n")
	}
	for _, d := range r.Dropped {
		reason := "close"
		if d.Reason != 0 {
			reason = d.Reason.String() + " " + noRoutes[d.Cause]
		}
		fmt.Fprintf(&b, "dropped %d: %s\n", d.Count, reason)
	}
	if r.Closed {
		b.WriteString("closed\n")
	}
	return b.String()
}

func (g *rig) printState() string {
	var b strings.Builder
	for p := range g.m.Queue().Priorities() {
		fmt.Fprintf(&b, "lane %d:", p)
		for m, ok := g.m.Queue().Next(p, 0); ok; m, ok = g.m.Queue().Next(p, m.ID) {
			fmt.Fprintf(&b, " %d=%s", m.ID, g.message(m.Ref).Body)
			if m.Attempt > 0 {
				fmt.Fprintf(&b, "@%d(%d failed)", m.Attempt, m.Failed)
			}
			if m.ExpiresAt > 0 {
				fmt.Fprintf(&b, "!%d", m.ExpiresAt)
			}
		}
		b.WriteString("\n")
	}
	g.m.Outbox().View().All(func(it dlx.Item) bool {
		fmt.Fprintf(&b, "item %d=%s %s at %d, %s", it.ID, g.message(it.Ref).Body, it.Reason, it.TimeMillis, it.State)
		for _, l := range it.Legs {
			fmt.Fprintf(&b, " %d#%d", l.Target, l.Seq)
		}
		if len(it.Taken) > 0 {
			fmt.Fprintf(&b, ", taken by %v", it.Taken)
		}
		if it.Anew {
			b.WriteString(", anew")
		}
		b.WriteString("\n")
		return true
	})
	if b.Len() == 0 {
		return "empty"
	}
	return b.String()
}
