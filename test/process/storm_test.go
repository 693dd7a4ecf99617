package process

import (
	"context"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/storm"
)

// TestStorm is some seconds of make storm.
func TestStorm(t *testing.T) {
	t.Parallel()
	needWarren(t)
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	cfg := storm.Default()
	cfg.Binary, cfg.Dir, cfg.Seed, cfg.Time = binary, t.TempDir(), 1, 4*time.Second
	cfg.AMQP, cfg.GRPC, cfg.HTTP, cfg.Admins = 6, 2, 1, 1
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeoutStart)
	defer cancel()
	r, err := storm.Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		t.Errorf("after %v: %s: %s", f.After, f.Kind, f.Text)
	}
	t.Logf("%s%s", r.Answers, r.Errors)
}
