package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// readyNow asks a node whether it is ready, in words and as JSON.
func readyNow(t *testing.T, base string) (code int, line, step string) {
	t.Helper()
	for _, accept := range []string{"*/*", "application/json"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error(), ""
		}
		defer resp.Body.Close()
		if accept == "application/json" {
			var state struct{ Status, Reason, Step string }
			if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
				t.Fatal(err)
			}
			return code, line, state.Step
		}
		body := make([]byte, 4096)
		n, _ := resp.Body.Read(body)
		code = resp.StatusCode
		line, _, _ = strings.Cut(string(body[:n]), "\n")
	}
	panic("unreachable")
}

// TestReadinessTellsWhy: a node that cannot serve says so within five seconds and why, a node that can says that; and it is
// alive all the time.
func TestReadinessTellsWhy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	first := c.Node(0)
	if err := first.Launch(); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "it is founding a cluster", func() bool {
		code, line, step := readyNow(t, first.HTTP())
		return code == 503 && strings.HasPrefix(line, "starting: waiting for a cluster: ") && step == "starting"
	})
	startAll(t, c)
	await(t, timeoutReply, "it is ready", func() bool {
		code, line, step := readyNow(t, first.HTTP())
		return code == 200 && line == "ready" && step == ""
	})
	kill(t, c.Node(2))
	for i := range 2 {
		frozen, left := c.Node(i), c.Node(1-i)
		t.Cleanup(func() { _ = frozen.Signal(syscall.SIGCONT) })
		well := 0
		await(t, timeoutStart, "the two are well", func() bool {
			one, _, _ := readyNow(t, left.HTTP())
			other, _, _ := readyNow(t, frozen.HTTP())
			if well++; one != 200 || other != 200 {
				well = 0
			}
			return well > 20
		})
		if err := frozen.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		why := ""
		await(t, timeoutReply, "the last node is not ready", func() bool {
			code, line, step := readyNow(t, left.HTTP())
			why = line
			return code == 503 && step == "catalog"
		})
		took := time.Since(begun)
		t.Logf("beside %s: %q after %v", frozen.Name, why, took)
		if took > 6*time.Second+2*cluster.Stalled(begun) || !strings.Contains(why, "leader") {
			t.Errorf("%q after %v", why, took)
		}
		if _, err := patiently(func() ([]byte, error) { return left.Fetch(t.Context(), "/healthz") }); err != nil {
			t.Errorf("%s without a majority: %v", left.Name, err)
		}
		if err := frozen.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	start(t, c.Node(2))
}

// TestReadinessNeedsTheDisk: a node whose disk does not answer is not ready, and alive.
func TestReadinessNeedsTheDisk(t *testing.T) {
	t.Parallel()
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Binary = binary })
	startAll(t, c)
	n := c.Node(0)
	s := at(t, n)
	plainQueue(s, "slow", nil)
	if err := n.SetDisk(t.Context(), cluster.Disk{SyncDelay: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := s.ch.Publish("", "slow", false, false, message("one")); err != nil {
		t.Fatal(err)
	}
	await(t, 18*time.Second, "not ready", func() bool { // the disk answers after twenty
		code, _, step := readyNow(t, n.HTTP())
		return code == 503 && step == "disk"
	})
	if _, err := patiently(func() ([]byte, error) { return n.Fetch(t.Context(), "/healthz") }); err != nil {
		t.Error(err)
	}
	kill(t, n)
}

// TestPortsOfTheirOwn: probes have a port of their own, with nothing else on it, and so have metrics and profiles. With metrics-login they are for
// users with the tag monitoring, wherever they are.
func TestPortsOfTheirOwn(t *testing.T) {
	t.Parallel()
	var health, debug, figures string
	c := newCluster(t, 1, func(cfg *cluster.Config) {
		cfg.Places = func(string) (cluster.Place, error) {
			return cluster.Place{Args: func(a cluster.Addrs) ([]string, error) {
				health = strings.Replace(a.GRPC, "127.0.0.1", "127.0.0.2", 1)
				debug = strings.Replace(a.GRPC, "127.0.0.1", "127.0.0.3", 1)
				figures = strings.Replace(a.GRPC, "127.0.0.1", "127.0.0.4", 1)
				return []string{"--health-addr", health, "--debug-addr", debug, "--metrics-addr", figures, "--metrics-login", "on"}, nil
			}}, nil
		}
	})
	if err := c.Node(0).Launch(); err != nil {
		t.Fatal(err)
	}
	for addr, paths := range map[string]map[string]int{
		"http://" + health:              {"/readyz": 200, "/healthz": 200, "/metrics": 401, "/api/overview": 404, "/debug/pprof/": 404, "/debug/queues": 404},
		"http://" + figures:             {"/metrics": 401, "/metrics/per-object": 401, "/metrics/detailed": 401, "/readyz": 404, "/healthz": 404, "/api/overview": 404, "/debug/queues": 404},
		"http://guest:guest@" + figures: {"/metrics": 200, "/metrics/per-object": 200, "/metrics/detailed": 200},
		"http://guest:wrong@" + figures: {"/metrics": 401},
		"http://" + debug:               {"/debug/pprof/": 200, "/debug/pprof/heap?debug=1": 200, "/debug/queues": 200, "/readyz": 404, "/metrics": 404, "/api/overview": 404},
		strings.Replace(c.Node(0).HTTP(), "//", "//guest:guest@", 1): {"/api/health/checks/protocol-listener/http%2Fprometheus": 200, "/api/health/checks/protocol-listener/prometheus": 200},
		c.Node(0).HTTP(): {"/readyz": 200, "/metrics": 401, "/api/queues": 401, "/debug/pprof/": 404, "/debug/queues": 404},
	} {
		for path, want := range paths {
			eventually(t, func() error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, addr+path, http.NoBody)
				if err != nil {
					return err
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					return fmt.Errorf("%s%s: %s, want %d", addr, path, resp.Status, want)
				}
				return nil
			})
		}
	}
	await(t, timeoutReply, "the listeners are told of", func() bool {
		list := mustCtl(t, c.Node(0), "listeners")
		return strings.Contains(list, "protocol: http/prometheus, purpose: metrics") && strings.Contains(list, "protocol: health") && strings.Contains(list, "protocol: debug")
	})
	mustCtl(t, c.Node(0), "check_port_connectivity")
}

// TestStartingNodeRefusesClients: while a node waits for others, clients are refused rather than left without an answer: those that know several
// addresses try the next one at once.
func TestStartingNodeRefusesClients(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := newCluster(t, 3)
	n := c.Node(0)
	refuses := func(step string) {
		t.Helper()
		await(t, timeoutStart, step, func() bool {
			_, line, _ := readyNow(t, n.HTTP())
			return strings.HasPrefix(line, "starting: "+step)
		})
		for _, addr := range []string{n.AMQPAddr(), n.GRPCAddr()} {
			conn, err := net.DialTimeout("tcp", addr, timeoutReply)
			if err == nil {
				conn.Close()
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: a connection to %s gives %v", step, addr, err)
			}
		}
	}
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	refuses("waiting for a cluster")
	startAll(t, c)
	plainQueue(at(t, n), "q", nil)
	stopAll(t, c)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	refuses("waiting for the catalog")
	start(t, c.Node(1))
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	s := at(t, n)
	s.fill("q", "a")
	s.holds("q", "a")
}
