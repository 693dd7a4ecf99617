package grpc

import (
	"google.golang.org/grpc/codes"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/contain"
)

// work is the kind of work that is contained here.
const work = "grpc"

// fault is what a call ends with that has met a fault of this program.
func fault() *refusal { return refuse(codes.Internal, "INTERNAL", "internal error") }

// apart runs f, a part of a call, on a goroutine of its own, which ends with the call at the latest. The channel gets what f returns, or that it met a fault of this
// program; nobody needs to receive it.
func (s *Server) apart(f func() error) <-chan error {
	done := make(chan error, 1)
	s.workers.Go(func() { done <- s.part(f) })
	return done
}

func (s *Server) part(f func() error) (err error) {
	defer s.cfg.Guard.Keep(work, "", func() { err = fault() })
	return f()
}

// Locks are those that calls share with others, and those of streams that the broker takes.
func (s *Server) Locks() contain.Locks {
	return func(yield func(string, contain.Lock) bool) {
		if !yield("grpc.Server.mu", &s.mu) || !yield("grpc.gets.mu", &s.gets.mu) {
			return
		}
		for _, rooms := range []*requestRooms{&s.publishes, &s.requests} {
			if !yield("grpc.requestRoom.mu", &rooms.bytes.mu) || !yield("grpc.requestRoom.mu", &rooms.decoded.mu) {
				return
			}
		}
		for _, x := range s.all() {
			if !yield(x.kind, x.shared) {
				return
			}
		}
	}
}

// sink is a stream that the broker tells of what happens.
type sink interface {
	broker.Sink
	// lock is what the broker takes then, and its name.
	lock() (string, contain.Lock)
}

func (x *publishStream) lock() (string, contain.Lock) { return "grpc.publishStream.mu", &x.mu }
func (x *consumeStream) lock() (string, contain.Lock) { return "grpc.consumeStream.mu", &x.mu }
