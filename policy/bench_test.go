package policy

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// BenchmarkMatch finds what applies to a queue among 100 policies of which the last one does:
// the cost for each queue of a vhost of a change of its policies.
func BenchmarkMatch(b *testing.B) {
	var s *Set
	for i := range 100 {
		p, err := New(Spec{
			Name: fmt.Sprintf("p%02d", i), Pattern: fmt.Sprintf("^orders-%02d\\..*", i), ApplyTo: Queues, Priority: int64(-i),
			Definition: amqp.Table{{Name: "max-length", Value: int64(5)}},
		})
		if err != nil {
			b.Fatal(err)
		}
		s = s.With(p, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		if p, _ := s.Match(QuorumQueue, "orders-99.eu.central"); p == nil {
			b.Fatal("nothing applies")
		}
	}
}
