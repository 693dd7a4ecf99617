package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Systems that are measured.
const (
	warren     = "warren"
	rabbitMQ   = "rabbitmq"
	rabbitMQ4  = "rabbitmq4"
	natsSynced = "nats-synced"
	natsPlain  = "nats"
)

var systems = []string{warren, rabbitMQ, rabbitMQ4, natsSynced, natsPlain}

// titles are the systems' names in the table.
var titles = map[string]string{warren: "Warren", rabbitMQ: "RabbitMQ", rabbitMQ4: "RabbitMQ 4", natsSynced: "NATS, synced", natsPlain: "NATS"}

// figure is a field of the JSON line.
type figure struct{ field, title, target string }

// work is a row, or several, of what Warren is to reach.
type work struct {
	id, title string
	args      string // of warren-perf; ~N is a number that --scale changes
	figures   []figure
	systems   []string // nil: all
}

var (
	letters  = []string{warren, rabbitMQ, rabbitMQ4} // NATS has no dead letters
	reachDLX = "≥ 25,000"
)

// works are in the order in which they are done.
var works = []work{
	{id: "1", title: "1 queue, 4/4 clients", args: "throughput --publishers 4 --consumers 4", figures: []figure{
		{"consumed_per_s", "consumed/s", "≥ 3 × RabbitMQ, ≥ 1.5 × NATS"},
		{"server_cpu_s_per_million", "2: server CPU s per million", "≤ 20"},
		{"written_per_byte", "19: bytes written per replica and byte", "≤ 1.2"},
	}},
	{id: "3", title: "1 queue, 1/1 clients", args: "throughput", figures: []figure{
		{"consumed_per_s", "consumed/s", "≥ 3 × RabbitMQ"}, {"server_cpu_s_per_million", "server CPU s per million", "≤ 20"},
	}},
	{id: "4", title: "10 queues, 4/4 clients", args: "throughput --queues 10 --publishers 4 --consumers 4", figures: []figure{
		{"consumed_per_s", "consumed/s", "≥ 4 × RabbitMQ, ≥ 1.25 × NATS"}, {"server_cpu_s_per_million", "server CPU s per million", "≤ 25"},
	}},
	{id: "5", title: "16 KiB, 1 queue, 4/4 clients", args: "throughput --publishers 4 --consumers 4 --size 16384", figures: []figure{
		{"consumed_per_s", "consumed/s", "≥ 1.5 × NATS"}, {"written_per_byte", "19: bytes written per replica and byte", "≤ 1.2"},
	}},
	{id: "6", title: "100 B, 1 queue, 4/4 clients", args: "throughput --publishers 4 --consumers 4 --size 100", figures: []figure{
		{"consumed_per_s", "consumed/s", "≥ 2.7 × RabbitMQ, ≥ 1.2 × NATS"},
	}},
	{id: "7", title: "1,000 messages/s", args: "latency --rate 1000", figures: []figure{
		{"confirm_p50_ms", "confirm p50 ms", "≤ 0.6"}, {"confirm_p99_ms", "confirm p99 ms", "≤ 2"}, {"server_cores", "server cores", "≤ 0.3"},
	}},
	{
		id: "8", title: "dead letters, rejected, preloaded", args: "deadletter --preload ~100000 --publishers 4 --consumers 4", systems: letters,
		figures: []figure{{"deadlettered_per_s", "moved/s", reachDLX}},
	},
	{
		id: "8-once", title: "the same, RabbitMQ at least once", args: "deadletter --preload ~30000 --publishers 4 --consumers 4 --strategy at-least-once", systems: letters,
		figures: []figure{{"deadlettered_per_s", "moved/s", reachDLX}},
	},
	{id: "9-reject", title: "dead letters, rejected, publisher unthrottled", args: "deadletter", systems: letters, figures: []figure{
		{"moved_per_s", "moved/s", "≥ 15,000, as published"}, {"confirmed_per_s", "published/s", ""},
	}},
	{id: "9-ttl", title: "dead letters, expired, publisher unthrottled", args: "deadletter --via ttl", systems: letters, figures: []figure{
		{"moved_per_s", "moved/s", "≥ 15,000, as published"}, {"confirmed_per_s", "published/s", ""},
	}},
	{id: "9-once", title: "the same, RabbitMQ at least once", args: "deadletter --via ttl --strategy at-least-once", systems: letters, figures: []figure{
		{"moved_per_s", "moved/s", "≥ 15,000, as published"}, {"confirmed_per_s", "published/s", ""},
	}},
	{id: "10", title: "backlog of 300,000, 4/4 clients", args: "backlog --messages ~300000 --publishers 4 --consumers 4", figures: []figure{
		{"publish_per_s", "published/s", "≥ 60,000"},
		{"drain_per_s", "drained/s", "≥ 80,000"},
		{"memory_growth_mib", "11: memory growth of three nodes, MiB", "≤ 35"},
	}},
	{id: "12", title: "queues declared over 1 connection", args: "queues --queues ~200", figures: []figure{
		{"declare_per_s", "declared/s", "≥ 200"}, {"declare_cpu_ms", "server CPU ms each", "≤ 1.5"},
	}},
	{id: "13", title: "1,000 queues, declared over 16 connections", args: "queues --queues ~1000 --parallel 16", figures: []figure{
		{"declare_per_s", "12: declared/s", "≥ 500"},
		{"idle_cores", "idle: server cores", "≤ 0.05"},
		{"memory_growth_mib", "memory growth of three nodes, MiB", "≤ 150"},
		{"confirmed_per_s", "published/s to all in turn", ""},
	}},
	{id: "14", title: "5,000 queues", args: "queues --queues ~5000 --parallel 16", systems: letters, figures: []figure{
		{"idle_cores", "idle: server cores", "≤ 0.15"}, {"confirmed_per_s", "published/s to all in turn", "≥ 10,000"},
	}},
	{id: "15", title: "10,000 queues", args: "queues --queues ~10000 --parallel 16", systems: []string{warren}, figures: []figure{
		{"idle_cores", "idle: server cores", "≤ 0.3"}, {"server_memory_mib", "memory of three nodes, MiB", "≤ 2,150"},
	}},
	{id: "16", title: "1,000 messages/s, leader killed", args: "failover --rate 1000 --drain 45s", figures: []figure{{"confirm_gap_ms", "longest gap of confirms, ms", "≤ 250, never above 500"}}},
	{id: "16-1000", title: "1,000 messages/s to 1,000 queues in turn, a node killed", args: "failover --rate 1000 --queues ~1000 --window 10000 --drain 45s", figures: []figure{
		{"queue_gap_p99_ms", "p99 over the queues until the first confirm, ms", "≤ 1,500"},
	}},
	{id: "17", title: "1,000 messages/s, leader frozen", args: "failover --rate 1000 --freeze --drain 45s", figures: []figure{{"confirm_gap_ms", "longest gap of confirms, ms", "≤ 3,000"}}},
	{id: "20", title: "start of an empty node", args: "start --nodes 1", systems: []string{warren}, figures: []figure{
		{"start_ms", "until it accepts, ms", "≤ 300"}, {"server_memory_mib", "idle memory, MiB", "≤ 40"},
	}},
}

// shapes are loads as clients have them that no row is about; they are done when they are named, or by "shapes".
var shapes = []work{
	{id: "prefetch-1", title: "4 consumers with prefetch 1, nobody publishes", args: "backlog --messages ~30000 --publishers 4 --consumers 4 --prefetch 1", figures: drained},
	{id: "prefetch-10", title: "4 consumers with prefetch 10, nobody publishes", args: "backlog --messages ~100000 --publishers 4 --consumers 4 --prefetch 10", figures: drained},
	{id: "in-turn", title: "1 publisher that waits for each confirm", args: "throughput --window 1", figures: inAndOut},
	{id: "in-turn-16", title: "16 publishers that wait for each confirm, 4 queues", args: "throughput --queues 4 --publishers 16 --consumers 4 --window 1", figures: inAndOut},
	{id: "connections", title: "100 queues, 100/100 clients", args: "throughput --queues 100 --publishers 100 --consumers 100 --window 50 --prefetch 50", figures: inAndOut},
	{id: "large", title: "1 MiB, 1 queue, 4/4 clients", args: "throughput --publishers 4 --consumers 4 --size 1048576 --window 10 --prefetch 10", figures: inAndOut},
	{id: "fanout", title: "each message to 10 queues, 2/10 clients, copies", args: "throughput --fanout --queues 10 --publishers 2 --consumers 10 --window 200", figures: inAndOut, systems: letters},
	{id: "no-ack", title: "1 queue, 4/4 clients, without acks", args: "throughput --publishers 4 --consumers 4 --no-ack", figures: inAndOut, systems: letters},
	{id: "ack-100", title: "1 queue, 4/4 clients, 100 acked at once", args: "throughput --publishers 4 --consumers 4 --ack-every 100", figures: inAndOut},
}

var drained = []figure{{"drain_per_s", "drained/s", "≥ all"}}

var inAndOut = []figure{
	{"consumed_per_s", "consumed/s", "≥ all"}, {"confirm_p99_ms", "confirm p99 ms", "≤ all"}, {"server_cpu_s_per_million", "server CPU s per million", "≤ all"},
}

// of tells whether the work is done on a system.
func (w work) of(system string) bool { return w.systems == nil || slices.Contains(w.systems, system) }

// arguments returns the work's arguments with its numbers scaled, but not to less than least.
func (w work) arguments(scale float64) []string {
	const least = 10
	args := strings.Fields(w.args)
	for i, arg := range args {
		if text, scaled := strings.CutPrefix(arg, "~"); scaled {
			n, err := strconv.Atoi(text)
			if err != nil {
				panic(fmt.Sprintf("row %s: %v", w.id, err)) // works is wrong
			}
			args[i] = strconv.Itoa(max(least, int(math.Round(float64(n)*scale))))
		}
	}
	return args
}

// choose returns the works with these ids, separated by commas, "" for all rows, "shapes" for all shapes.
func choose(ids string) (list []work, err error) {
	switch ids {
	case "":
		return works, nil
	case "shapes":
		return shapes, nil
	}
	all := slices.Concat(works, shapes)
	for id := range strings.SplitSeq(ids, ",") {
		i := slices.IndexFunc(all, func(w work) bool { return w.id == id })
		if i < 0 {
			return nil, fmt.Errorf("no row %q", id)
		}
		list = append(list, all[i])
	}
	return list, nil
}
