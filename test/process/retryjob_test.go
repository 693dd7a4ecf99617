package process

import (
	"context"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/retryjob"
)

// TestRetryJob is the demonstration, shortened: the retry job runs on three
// nodes while the node that leads its queues is killed and restarted.
func TestRetryJob(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cfg := retryjob.Default()
	cfg.URLs, cfg.Jobs, cfg.Rate = c.URLs(), 1500, 200
	nemesis := &retryjob.Nemesis{Cluster: c, Every: 2 * time.Second, Down: 500 * time.Millisecond}
	report, err := nemesis.RunJob(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if !report.Counted {
		t.Error("the nodes do not tell how many dead letters primary has taken")
	}
	if report.Kills < 2 || report.Confirmed != cfg.Jobs || report.Done != cfg.Jobs*6/10 || report.Parked != cfg.Jobs*4/10 {
		t.Errorf("%d kills, %d confirmed, %d done, %d parked", report.Kills, report.Confirmed, report.Done, report.Parked)
	}
}

// TestRetryJobInPeace runs the job against each target without faults, so that
// the bookkeeping itself is checked against RabbitMQ as well.
func TestRetryJobInPeace(t *testing.T) {
	t.Parallel()
	targets := foreignURLs()
	if targets == nil {
		targets = sharedCluster(t, 3).URLs()
	}
	t.Cleanup(func() {
		conn, err := connect(targets[0])
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if err := retryjob.Remove(conn); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := retryjob.Default()
	cfg.URLs, cfg.Jobs, cfg.Rate, cfg.Delay = targets, 500, 500, 20*time.Millisecond
	report, err := retryjob.Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if foreignURLs() != nil {
		report.WrongDelays = 0 // RabbitMQ before 4 goes on with the history a client sends
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Confirmed != 500 || report.Done != 300 || report.Parked != 200 || report.Redelivered != 0 || report.Repeats != 0 {
		t.Errorf("%+v", report)
	}
}
