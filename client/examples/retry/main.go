// Command retry is an example of the Go client: a worker that tries failed jobs again after a second, three times in all, and then parks them.
//
//	go run ./client/examples/retry --addrs localhost:5680 --user guest --password guest
//
// The jobs' queue dead-letters into a queue where messages wait a second, and that one back into the jobs' queue. Both moves are the
// cluster's: no crash loses or doubles a job between the queues. The worker looks at the death history to see how often a job was tried. Parking is a publish
// and an ack, two steps: a worker that dies in between parks the job once more, so the parking lot drops duplicates, by the job's id.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/warrenmq/warren/client"
)

const (
	triesMax = 3
	delay    = time.Second
	// window is how long the parking lot remembers ids: longer than a worker may be away between the publish and the ack.
	window = 24 * time.Hour
)

func main() {
	addrs := flag.String("addrs", "localhost:5680", "gRPC addresses of nodes, with commas between")
	user := flag.String("user", "guest", "")
	password := flag.String("password", "guest", "")
	prefix := flag.String("prefix", fmt.Sprintf("example%d.", os.Getpid()), "begins the names of the queues, which are deleted at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg := client.Config{
		Addrs: strings.Split(*addrs, ","), User: *user, Password: *password, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := run(ctx, cfg, *prefix); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// shop has the names of the queues and what works on them.
type shop struct {
	c                  *client.Client
	p                  *client.Publisher
	jobs, wait, parked string
}

func run(ctx context.Context, cfg client.Config, prefix string) (err error) {
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, c.Close(end))
	}()
	// What has no result when a node ends is sent again, under the ids that it had.
	p, err := c.Publisher(client.PublisherConfig{Deduplicate: true})
	if err != nil {
		return err
	}
	s := &shop{c: c, p: p, jobs: prefix + "jobs", wait: prefix + "wait", parked: prefix + "parked"}
	if err := s.declare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	jobs := []string{"at once", "the second time", "never"}
	for _, job := range jobs {
		if err := p.Publish(ctx, &client.Message{RoutingKey: s.jobs, MessageID: prefix + job, Body: []byte(job), Mandatory: true}); err != nil {
			return fmt.Errorf("publish %q: %w", job, err)
		}
	}
	working, done := context.WithCancel(ctx)
	defer done()
	left := len(jobs)
	// One handler at a time, so that it needs no lock.
	err = c.Consume(working, s.jobs, client.ConsumerConfig{OnError: client.Reject}, func(ctx context.Context, d *client.Delivery) error {
		ended, err := s.work(ctx, d)
		if ended {
			if left--; left == 0 {
				done()
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	parked, err := c.Get(ctx, s.parked, 10, client.Ack)
	for _, d := range parked {
		fmt.Printf("parked: %s\n", d.Body)
	}
	return err
}

// declare makes the three queues.
func (s *shop) declare(ctx context.Context) error {
	for _, q := range []client.Queue{
		{Name: s.jobs, Type: "quorum", Arguments: client.Table{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.wait, "x-deduplication-window": window.Milliseconds(),
		}},
		{Name: s.wait, Type: "quorum", Arguments: client.Table{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.jobs, "x-message-ttl": delay.Milliseconds(),
		}},
		{Name: s.parked, Type: "quorum", Arguments: client.Table{"x-deduplication-window": window.Milliseconds()}},
	} {
		if _, err := s.c.DeclareQueue(ctx, q); err != nil {
			return fmt.Errorf("declare %s: %w", q.Name, err)
		}
	}
	return nil
}

// work handles a job. ended tells that it does not come again; an error rejects it, into the queue where it waits.
func (s *shop) work(ctx context.Context, d *client.Delivery) (ended bool, err error) {
	tries := 1
	for _, death := range d.Deaths {
		if death.Queue == s.jobs && death.Reason == "rejected" {
			tries += int(death.Count)
		}
	}
	if err := do(string(d.Body), tries); err == nil {
		fmt.Printf("%s: tried %d times\n", d.Body, tries)
		return true, nil
	} else if tries < triesMax {
		return false, err
	}
	fmt.Printf("%s: tried %d times\n", d.Body, tries)
	if err := s.p.Publish(ctx, &client.Message{
		RoutingKey: s.parked, MessageID: d.MessageID, DeduplicationID: d.MessageID, Body: d.Body, Headers: d.Headers, Mandatory: true,
	}); err != nil {
		_ = d.Requeue() // it counts as tried as often as before
		return false, fmt.Errorf("park: %w", err)
	}
	return true, nil
}

// do is the work itself.
func do(job string, tries int) error {
	if job == "at once" || job == "the second time" && tries == 2 {
		return nil
	}
	return errors.New("it does not work")
}

// remove deletes the queues of the example.
func (s *shop) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, q := range []string{s.jobs, s.wait, s.parked} {
		_, err := s.c.DeleteQueue(ctx, q)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
