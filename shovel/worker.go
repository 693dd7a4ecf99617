package shovel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config is what workers need of the node. All functions are safe for concurrent use.
type Config struct {
	// Local opens a connection to the cluster itself, on which user logs in with one of the answers.
	Local func(ctx context.Context, user string) (net.Conn, []amqp.Authentication, error)
	// Cluster is the cluster's name, for the header that says who has forwarded a message.
	Cluster func() string
	// Finished is told of a shovel that has done what it was to do. An error has the worker try again after a while.
	Finished func(ctx context.Context, j Job) error
	// MessageMax is the largest body, in bytes, that is forwarded.
	MessageMax uint64
	// Budget is about how many bytes of bodies one shovel has under way at once; one message is, whatever its size.
	Budget int64
	Logger *slog.Logger
}

// Job is a shovel of the catalog.
type Job struct {
	VHost, Name string
	// User put it there, and is who it logs in as where a URI of the cluster itself names nobody.
	User string
	// Since is the catalog's revision at which it was put there: another one is another shovel.
	Since uint64
	*Definition
	// Broken is why there is no definition: this program cannot read it.
	Broken error
}

// Worker does the job of one shovel until it is stopped. It is made by [Start].
type Worker struct {
	cfg Config
	def Job

	stop    context.CancelFunc // in order: what is under way is waited for
	ended   chan struct{}
	restart chan struct{} // has one element while somebody wants it

	mu     sync.Mutex
	status Status
}

// stopTime bounds how long a worker that is stopped waits for confirms.
const stopTime = 5 * time.Second

var (
	errFinished = errors.New("the shovel is done")
	errRestart  = errors.New("the shovel is started again")
)

// Start begins a job. Stop ends it.
func Start(cfg Config, j Job) *Worker {
	ctx, stop := context.WithCancel(context.Background())
	w := &Worker{cfg: cfg, def: j, stop: stop, ended: make(chan struct{}), restart: make(chan struct{}, 1)}
	w.status = Status{VHost: j.VHost, Name: j.Name, State: Starting, Since: time.Now(), Remaining: -1}
	go func() {
		defer close(w.ended)
		w.run(ctx)
	}()
	return w
}

// Stop ends the worker and waits for it: it takes no more messages, and confirms of those under way are waited for, up to stopTime.
func (w *Worker) Stop() {
	w.stop()
	<-w.ended
}

// Restart has the worker connect anew.
func (w *Worker) Restart() {
	select {
	case w.restart <- struct{}{}:
	default: // wanted already
	}
}

func (w *Worker) run(ctx context.Context) {
	f := newForwarder(w)
	defer f.disconnect()
	for ctx.Err() == nil {
		w.enter(Starting, w.Status().Reason)
		err := f.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRestart):
			f.disconnect()
			continue
		case errors.Is(err, errSuspects):
			continue
		case errors.Is(err, errFinished):
			f.disconnect()
			if err = w.cfg.Finished(ctx, w.def); err == nil {
				<-ctx.Done() // whoever has made the worker stops it when the catalog says so
				return
			}
			err = fmt.Errorf("the shovel is done, and is still in the catalog: %w", err)
		}
		w.enter(Terminated, err.Error())
		w.cfg.Logger.Warn("a shovel has failed", "vhost", w.def.VHost, "shovel", w.def.Name, "err", err, "again_in", w.def.ReconnectDelay)
		w.pause(ctx, f)
	}
}

// pause waits for the reconnect delay, for somebody who wants the shovel started again, and for the end.
func (w *Worker) pause(ctx context.Context, f *forwarder) {
	var again <-chan time.Time // without a delay: never
	if d := w.def.ReconnectDelay; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		again = t.C
	} else {
		f.disconnect()
	}
	select {
	case <-again:
	case <-w.restart:
	case <-ctx.Done():
	}
}
