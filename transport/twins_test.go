package transport

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

// counting counts the lines with a text.
type counting struct {
	text string
	n    *atomic.Int64
}

func (w counting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.n.Add(1)
	}
	return len(p), nil
}

// TestTwinsAreTold has processes of one node take each other's place. A restart is not spoken of, nor a link that is made anew.
func TestTwinsAreTold(t *testing.T) {
	var told atomic.Int64
	m := startMesh(t, &directory{}, "b/1", func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(counting{"two processes run as the same node", &told}, nil))
	})
	for i, step := range []struct {
		process uint64
		told    int64
	}{{11, 0}, {11, 0}, {12, 0}, {12, 0}, {13, 0}, {12, 1}, {13, 1}, {12, 1}} {
		l := dialRawAs(t, m, "a/1", step.process)
		l.sendBytes(message(l.epoch, 1))
		until(t, "the stream is the node's", func() bool { return m.inboundEpoch("a/1") == l.epoch })
		if step.told > 0 { // it is said a moment later
			until(t, "it is said", func() bool { return told.Load() > 0 })
		}
		if n := told.Load(); n != step.told {
			t.Fatalf("step %d: told %d times", i, n)
		}
	}
}
