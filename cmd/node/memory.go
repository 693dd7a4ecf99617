package main

import (
	"runtime/metrics"

	"github.com/warrenmq/warren/management"
)

// memoryClasses are the parts of the memory that Go's runtime holds. Objects is divided further.
var memoryClasses = []struct {
	part    string
	classes []string
}{
	{"objects", []string{"heap/objects"}},
	{"heap_unused", []string{"heap/unused"}},
	{"heap_free", []string{"heap/free"}},
	{"stacks", []string{"heap/stacks", "os-stacks"}},
	{"runtime", []string{"metadata/mcache/free", "metadata/mcache/inuse", "metadata/mspan/free", "metadata/mspan/inuse", "metadata/other", "profiling/buckets", "other"}},
}

// Memory is what the process's memory is used for.
func (n *running) Memory() management.Memory {
	m := management.Memory{Used: n.resources().MemoryBytes, Limit: n.alarms.gauge.Watermark}
	q := n.broker.QueueMemory()
	of := map[string]uint64{}
	for _, c := range memoryClasses {
		samples := make([]metrics.Sample, len(c.classes))
		for i, class := range c.classes {
			samples[i].Name = "/memory/classes/" + class + ":bytes"
		}
		metrics.Read(samples)
		for i := range samples {
			if samples[i].Value.Kind() == metrics.KindUint64 {
				of[c.part] += samples[i].Value.Uint64()
			}
		}
	}
	// What queues take is counted about, and a moment earlier.
	rest := of["objects"]
	for _, p := range []management.MemoryPart{
		{Part: "queues", Bytes: uint64(max(0, q.Replicas)), About: "what replicas of queues know of their messages"},
		{Part: "queue_leaders", Bytes: uint64(max(0, q.Leaders)), About: "consumers and deliveries of queues that are led here"},
		{Part: "transient_messages", Bytes: uint64(max(0, q.Messages)), About: "messages of queues that are in memory only"},
	} {
		p.Bytes = min(p.Bytes, rest)
		rest -= p.Bytes
		m.Parts = append(m.Parts, p)
	}
	m.Parts = append(
		m.Parts,
		management.MemoryPart{Part: "other_objects", Bytes: rest, About: "connections, the catalog, caches, buffers, and garbage that is not collected yet"},
		management.MemoryPart{Part: "stacks", Bytes: of["stacks"], About: "of goroutines and threads"},
		management.MemoryPart{Part: "runtime", Bytes: of["runtime"], About: "what Go's runtime needs for itself"},
		management.MemoryPart{Part: "heap_unused", Bytes: of["heap_unused"], About: "room between objects"},
		management.MemoryPart{Part: "heap_free", Bytes: of["heap_free"], About: "free, kept for what comes, and given back when the node is idle"},
	)
	for _, p := range m.Parts {
		m.Total += p.Bytes
	}
	return m
}
