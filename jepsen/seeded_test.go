package jepsen

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/jepsen/report"
	"github.com/warrenmq/warren/test/cluster"
)

var seededAll = flag.Bool("jepsen.seeded", false, "let TestSeededFaults sow all faults, not only a few")

const (
	// seededMax is how long a fault may stay unseen.
	seededMax = 5 * time.Minute
	// faultEnv is failpoint.EnvFault, which only builds with the tag have.
	faultEnv = "WARREN_SEEDED_FAULT"
)

// seeded is a fault and who sees it.
type seeded struct {
	fault failpoint.Fault
	by    string
	look  func(t *testing.T, ctx context.Context, s *seeded, attempt int) (found string)
	// sample says that it is looked for in each run of the tests.
	sample bool

	// What jepsen runs, and what the verdict must name: a checker, or an error of the run.
	workload, nemesis string
	time              time.Duration
	rate              int
	// slow disks leave more to be lost that is not synced.
	syncs time.Duration
	// What a test binary runs.
	pkg string
	run []string
	// want is what the checker or the test says, in part: one of these.
	want []string
}

// seededFaults names for each fault the combination that finds it fastest.
func seededFaults() []seeded {
	sim := func(fault failpoint.Fault, want ...string) seeded {
		return seeded{fault: fault, by: "the simulation", look: inTests, pkg: "./sim", run: []string{"-test.run=TestSeeds$"}, want: want}
	}
	return []seeded{
		sim(failpoint.ConfirmEarly, "was committed and is 0 times"),
		{fault: failpoint.ForgetSync, by: "queue under power", look: inRun, workload: "queue", nemesis: "power", time: 4 * time.Second, rate: 200, want: []string{"corrupt store", "nothing lost"}},
		{fault: failpoint.LocalClock, by: "queue without faults", look: inRun, workload: "queue", nemesis: "none", time: time.Second, rate: 100, want: []string{"identical replicas"}, sample: true},
		sim(failpoint.SkipMark, "first delivery of message"),
		sim(failpoint.MoveEarly, "its log has committed"),
		sim(failpoint.BareAck, "was confirmed"),
		sim(failpoint.DeliverBeyond, "the delivered mark in its log"),
		sim(failpoint.ForgetWatermark, "differs from the log", "routed was"),
		sim(failpoint.OldPlan, "a plan of revision"),
		sim(failpoint.KeepPlan, "no catalog from revision"),
		{fault: failpoint.UnpinEarly, by: "store, TestCrashAtPublish", look: inTests, pkg: "./store", run: []string{"-test.run=TestCrashAtPublish$"}, want: []string{"pinned by the published snapshot are missing"}, sample: true},
		{fault: failpoint.TakeStale, by: "store, TestCrashAtRecycle", look: inTests, pkg: "./store", run: []string{"-test.run=TestCrashAtRecycle$"}, want: []string{"no possible state", "corrupt store"}},
		{fault: failpoint.AnswerEarly, by: "queue under power on slow disks", look: inRun, workload: "queue", nemesis: "power", time: 6 * time.Second, rate: 500, syncs: 100 * time.Millisecond, want: []string{"nothing lost"}},
	}
}

// TestSeededFaults: the harnesses see each bug that is sown into the nodes, by what they always
// check. It logs how long that took.
func TestSeededFaults(t *testing.T) {
	list := seededFaults()
	for _, f := range failpoint.Faults() {
		if !slices.ContainsFunc(list, func(s seeded) bool { return s.fault == f }) {
			t.Errorf("nobody looks for %s", f)
		}
	}
	for i := range list {
		s := &list[i]
		if !s.sample && !*seededAll {
			continue
		}
		t.Run(string(s.fault), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), seededMax)
			defer cancel()
			if s.pkg != "" {
				if _, err := testBinary(s.pkg); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			for attempt := 1; ctx.Err() == nil; attempt++ {
				if found := s.look(t, ctx, s, attempt); found != "" {
					t.Logf("| `%s` | %s | %.1f | %s", s.fault, s.by, time.Since(begun).Seconds(), found)
					return
				}
			}
			t.Errorf("%s was not seen in %v by %s", s.fault, seededMax, s.by)
		})
	}
}

// inRun looks in a run of the harness on nodes with the fault.
func inRun(t *testing.T, ctx context.Context, s *seeded, attempt int) string {
	t.Helper()
	cfg := Default()
	cfg.Slack = testSlack
	cfg.Workload, cfg.Nemeses, cfg.Time, cfg.Rate, cfg.Seed = s.workload, []string{s.nemesis}, s.time, s.rate, uint64(attempt)
	cfg.Binary, cfg.Failpoints, cfg.Out = os.Getenv(cluster.BinaryEnv), true, t.TempDir()
	cfg.Env = []string{faultEnv + "=" + string(s.fault)}
	if s.syncs > 0 {
		cfg.Env = append(cfg.Env, fmt.Sprintf("WARREN_DISK_SYNC_DELAY=%v", s.syncs))
	}
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range problems(r) {
		if found := s.in(said); found != "" {
			return oneLine(found)
		}
	}
	if !r.Valid {
		t.Logf("attempt %d: invalid for another reason: %s", attempt, r.Line())
	}
	return ""
}

// in returns what is said from the words on that show the fault, "" if there are none.
func (s *seeded) in(said string) string {
	for _, words := range s.want {
		if i := strings.Index(said, words); i >= 0 {
			return said[i:]
		}
	}
	return ""
}

// problems lists what was found.
func problems(r report.Report) (list []string) {
	list = append(list, r.Errors...)
	for _, c := range r.Results {
		if !c.Valid && !c.Skipped && len(c.Problems) > 0 {
			list = append(list, c.Checker+": "+c.Problems[0])
		}
	}
	return list
}

// oneLine writes the beginning of s in one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), 300)]
}

// inTests looks in a test of another package that has the fault.
func inTests(t *testing.T, ctx context.Context, s *seeded, attempt int) string {
	t.Helper()
	binary, err := testBinary(s.pkg)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Clone(s.run)
	if s.pkg == "./sim" {
		args = append(args, fmt.Sprintf("-sim.first=%d", 100*attempt), "-sim.seeds=10", "-test.failfast")
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join("..", s.pkg)
	cmd.Env = append(os.Environ(), faultEnv+"="+string(s.fault))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if s.in(line) != "" {
			return oneLine(line)
		}
	}
	t.Logf("attempt %d: fails for another reason: %s", attempt, oneLine(string(out)))
	return ""
}

// testBinary compiles the tests of a package with failpoints, once.
var testBinary = func() func(pkg string) (string, error) {
	var mu sync.Mutex
	built := map[string]string{}
	return func(pkg string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if path, known := built[pkg]; known {
			return path, nil
		}
		path := filepath.Join(filepath.Dir(os.Getenv(cluster.BinaryEnv)), filepath.Base(pkg)+".test")
		cmd := exec.Command("go", "test", "-c", "-tags", cluster.FailpointsTag+",invariants", "-o", path, pkg)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as other tests are compiled that have no race detector
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("compile the tests of %s: %w: %s", pkg, err, out)
		}
		built[pkg] = path
		return path, nil
	}
}()
