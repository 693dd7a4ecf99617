package scale

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var full = flag.Bool("scale.full", false, "work out all sizes and print the tables of docs/scaling.md")

// TestTables prints the tables. It takes minutes with a million queues; `make scale`.
func TestTables(t *testing.T) {
	if !*full {
		t.Skip("-scale.full prints the tables")
	}
	var rows []Row
	for _, s := range Sizes() {
		rows = append(rows, Model(DefaultCosts(), DefaultBudget(), s))
	}
	fmt.Print(Tables(rows))
}

// TestModel: placement is even and has a replica in each zone, so that no queue loses its quorum with a zone; each queue
// has one leader afterwards; what grows with queues grows in proportion.
func TestModel(t *testing.T) {
	for _, s := range []Size{{5, 2000}, {20, 2000}, {50, 1000}} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			l := lay(s, zones, 50)
			size := map[int]int{}
			for _, z := range l.zones {
				size[z]++
			}
			for q, p := range l.queues {
				if a, b, c := l.zones[p[0]], l.zones[p[1]], l.zones[p[2]]; a == b || b == c || a == c {
					t.Fatalf("queue %d has two replicas in a zone", q)
				}
			}
			for i, holds := range l.holds {
				if mean := s.Queues / size[l.zones[i]]; holds < mean-58 || holds > mean+58 {
					t.Errorf("node %d holds %d, mean of its zone %d", i, holds, mean)
				}
			}
			r := Model(DefaultCosts(), DefaultBudget(), s)
			for _, f := range []failure{r.node, r.zone} {
				if f.Double > 0 || f.NoQuorum > 0 || f.Orphans == 0 || f.Last < f.Median || f.Last > time.Minute {
					t.Errorf("%d nodes lost: %d orphans, %d without a quorum, %d with two leaders, last after %v", f.Lost, f.Orphans, f.NoQuorum, f.Double, f.Last)
				}
				if mean := s.Queues / (s.Nodes - f.Lost); f.MostLed > 2*mean {
					t.Errorf("%d nodes lost: a node leads %d, mean %d", f.Lost, f.MostLed, mean)
				}
			}
			if again := Model(DefaultCosts(), DefaultBudget(), s); again.node.Last != r.node.Last || again.zone.Messages != r.zone.Messages {
				t.Error("the same question has two answers")
			}
			twice := Model(DefaultCosts(), DefaultBudget(), Size{s.Nodes, 2 * s.Queues})
			if ratio := twice.steady.beats.messages / r.steady.beats.messages; ratio < 1.8 || ratio > 2.2 {
				t.Errorf("twice the queues, %.2f times the heartbeats", ratio)
			}
		})
	}
}

// TestModelAgrees: what the model says of pings and of the catalog's idle appends is what real nodes in this process do, within a
// fifth; the processor time within a factor of eight, because the machine is somebody else's too, where a machine that charges more for the same
// exchanges without Warren may charge as much more for Warren's. A machine that stops the process, or lets it elect and say things twice, spoils a
// measurement, not each of several.
func TestModelAgrees(t *testing.T) {
	const measurements = 8
	for _, n := range []int{3, 5} {
		bare := bareExchange(t, n)
		r := rigOf(t, n, rigParts{detector: true, catalog: true})
		var wrong []string
		for range measurements {
			if wrong = disagrees(t, r, n, bare); len(wrong) == 0 {
				break
			}
			t.Logf("measured again: %s", strings.Join(wrong, "; "))
		}
		for _, w := range wrong {
			t.Errorf("%d nodes, in the last of %d measurements: %s", n, measurements, w)
		}
	}
}

// disagrees measures once, and says what the model would have otherwise. bare is what an exchange costs here without Warren.
func disagrees(t *testing.T, r *rig, n int, bare time.Duration) (wrong []string) {
	t.Helper()
	c := DefaultCosts()
	m, took, stopped := overWatched(r, 3*time.Second)
	s := c.steady(Size{n, 3}, lay(Size{n, 3}, 1, 1))
	secs := took.Seconds()
	// Every message is one write. The catalog's followers answer.
	messages := float64(n)*s.pings.messages + 2*s.catalog.messages
	bytes := float64(n)*s.pings.bytes + 2*s.catalog.bytes
	dear := max(1, float64(bare)/float64(c.PingCPU)) // how much more than that of the model this machine charges
	cpu := dear * (float64(n)*s.pings.cpu.Seconds() + 2*s.catalog.cpu.Seconds())
	t.Logf("%d nodes: %.0f messages/s, model %.0f; %.0f bytes/s, model %.0f; %.1f ms/s, model %.1f with bare exchanges of %v; stopped for %v of %v", n,
		float64(m.writes)/secs, messages, float64(m.bytes)/secs, bytes, m.cpu.Seconds()/secs*1e3, cpu*1e3, bare, stopped, took)
	ran := 1 - stopped.Seconds()/secs // who is stopped sends nothing, and not all of it later
	within := func(what string, ratio, factor float64) {
		if ratio < ran/factor || ratio > factor {
			wrong = append(wrong, fmt.Sprintf("%s: measured %.2f times the model's, want within %.1f", what, ratio, factor))
		}
	}
	within("messages", float64(m.writes)/secs/messages, 1.2)
	within("bytes", float64(m.bytes)/secs/bytes, 1.2)
	if !raceDetector {
		within("processor time", m.cpu.Seconds()/secs/cpu, cpuFactor)
	}
	return wrong
}

// cpuFactor is how far the model's processor time may be from that of a process beside others.
const cpuFactor = 8

// overWatched measures, and tells for how long the process was stopped meanwhile.
func overWatched(r *rig, d time.Duration) (m meter, took, stopped time.Duration) {
	const tick, gap = 25 * time.Millisecond, 75 * time.Millisecond // looking takes processor time itself
	done, all := make(chan struct{}), make(chan time.Duration)
	go func() {
		var sum time.Duration
		for last, ended := time.Now(), false; !ended; {
			select {
			case <-done:
				ended = true
			case <-time.After(tick):
			}
			now := time.Now()
			if d := now.Sub(last); d > gap {
				sum += d
			}
			last = now
		}
		all <- sum
	}()
	m, took = r.over(d)
	close(done)
	return m, took, min(<-all, took)
}

// TestCatalogGrowsInProportion: a declaration costs the machine of the catalog about the same with ten times the queues, and the
// memory of a queue does not grow.
func TestCatalogGrowsInProportion(t *testing.T) {
	runs, err := runCatalog(10, []int{5000, 20_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", runs)
	for range 4 { // the process may have been stopped for a moment: the best counts
		if runs[1].Apply <= 5*runs[0].Apply {
			break
		}
		again, err := runCatalog(10, []int{5000, 20_000})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("again: %+v", again)
		for i := range runs {
			runs[i].Apply = min(runs[i].Apply, again[i].Apply)
		}
	}
	if runs[1].Apply > 5*runs[0].Apply {
		t.Errorf("%v for a declaration with %d queues, %v with %d", runs[1].Apply, runs[1].Queues, runs[0].Apply, runs[0].Queues)
	}
	if runs[1].Bytes > 1.5*runs[0].Bytes || runs[1].Bytes > 2500 {
		t.Errorf("%.0f bytes for each of %d queues, %.0f for each of %d", runs[1].Bytes, runs[1].Queues, runs[0].Bytes, runs[0].Queues)
	}
}
