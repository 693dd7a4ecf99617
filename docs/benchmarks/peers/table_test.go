package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	lines := []line{
		{"row": "1", "system": warren, "time": "t", "consumed_per_s": 30000.0, "lost": 1.0},
		{"row": "1", "system": warren, "time": "t", "consumed_per_s": 50000.0},
		{"row": "1", "system": warren, "time": "t", "consumed_per_s": 45000.0},
		{"row": "1", "system": rabbitMQ, "time": "t", "consumed_per_s": 15000.0},
		{"row": "1", "system": natsPlain, "error": "no port"},
		{"row": "8", "system": warren, "time": "t", "deadlettered_per_s": 30000.0, "server_cpu_s_per_million": 60.0},
		{"row": "8", "system": rabbitMQ, "time": "t", "deadlettered_per_s": 8000.0},
		{"row": "8", "system": rabbitMQ4, "time": "t", "deadlettered_per_s": 10000.0},
		{"row": "3", "system": warren, "time": "t", "server_cpu_s_per_million": 20.0},
		{"row": "3", "system": rabbitMQ, "time": "t", "server_cpu_s_per_million": 100.0},
		{"row": "3", "system": rabbitMQ4, "time": "t", "server_cpu_s_per_million": 120.0},
	}
	got := markdown(lines)
	for _, want := range []string{
		"| consumed/s | ≥ 3 × RabbitMQ, ≥ 1.5 × NATS | 45,000 (30,000–50,000) | 15,000 | – | – | – | 3.00 | – | 3, 1 |\n",
		"| ≥ 25,000 | 30,000 | 8,000 | 10,000 | – | – | 3.00 |",
		"| ≤ 20 | 20 | 100 | 120 | – | – | 0.20 |",
		"| 1 · 0 · 0 | 0 · 0 · 0 | 0 · 0 · 0 | – | 0 · 0 · 1 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
	}
}

func TestScale(t *testing.T) {
	w := work{args: "queues --queues ~5000 --parallel 16"}
	for scale, want := range map[float64]string{1: "5000", 0.1: "500", 0.0001: "10"} {
		if got := w.arguments(scale)[2]; got != want {
			t.Errorf("scale %v: %s, want %s", scale, got, want)
		}
	}
	if _, err := choose("1,none"); err == nil {
		t.Error("a row that is not there was chosen")
	}
}

func TestRedelivered(t *testing.T) {
	for reply, want := range map[string]bool{
		"$JS.ACK.perf-0.c.1.10.10.1700000000.0":            false,
		"$JS.ACK.perf-0.c.2.10.11.1700000000.0":            true,
		"$JS.ACK.hub.account.perf-0.c.1.10.10.170.0.token": false,
		"$JS.ACK.hub.account.perf-0.c.3.10.10.170.0.token": true,
		"": false,
	} {
		if got := redelivered(reply); got != want {
			t.Errorf("%q: %v", reply, got)
		}
	}
}
