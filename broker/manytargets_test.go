package broker

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// BenchmarkLettersToManyTargets has messages die one by one, 2,000 a second, in a queue whose letters go to one queue or another: what a letter
// costs may not depend on how many there are.
func BenchmarkLettersToManyTargets(bench *testing.B) {
	for _, n := range []int{1, 100, 4000} {
		bench.Run(fmt.Sprint("targets=", n), func(bench *testing.B) {
			b := newBroker(bench)
			c := dial(bench, b)
			for i := range n {
				c.declare("t"+strconv.Itoa(i), nil)
			}
			c.declare("source", table("x-dead-letter-exchange", "", "x-message-ttl", int32(50)))
			c.bind(Binding{Source: "amq.fanout", Destination: "source"})
			source := b.queues.get(b.cat.View().Queue("/", "source").ID)
			letters := func(from, to int) {
				begin := time.Now()
				for i := from; i < to; i++ {
					if _, _, err := c.publish("amq.fanout", "t"+strconv.Itoa(i%n), "x", nil); err != nil {
						bench.Fatal(err)
					}
					time.Sleep(time.Until(begin.Add(time.Duration(i-from) * time.Second / 2000)))
				}
				c.await("the letters to be moved", func() (moved bool) {
					source.replica.View(func(m *fsm.Machine) { moved = m.Counters().Moved >= uint64(to) })
					return moved
				})
			}
			letters(0, n) // each has been sent something
			bench.ResetTimer()
			before := processorTime(bench)
			letters(n, n+bench.N)
			bench.ReportMetric(float64((processorTime(bench)-before).Microseconds())/float64(bench.N), "cpu-us/letter")
		})
	}
}

// processorTime is what this process has used.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
