package member

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAdvertisedNameWithoutResolver: a node that tells others a name for its host starts gossip while nobody resolves that, and meanwhile says who it is.
func TestAdvertisedNameWithoutResolver(t *testing.T) {
	for name, resolve := range map[string]func(context.Context, string) ([]string, error){
		"hangs": func(ctx context.Context, _ string) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() },
		"fails": func(context.Context, string) ([]string, error) { return nil, errors.New("the server misbehaves") },
		"lies":  func(context.Context, string) ([]string, error) { return []string{"no address"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t, "a", Config{Advertise: "a.warren.invalid", Resolve: resolve})
			done := make(chan error, 1)
			go func() { done <- a.SetCluster(clusterA) }()
			time.Sleep(50 * time.Millisecond)
			told := make(chan Info, 1)
			go func() { told <- a.Self() }()
			select {
			case <-told:
			case <-time.After(2 * time.Second):
				t.Error("nobody is told who the node is while its name is looked up")
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			b := open(t, "b", Config{Join: []string{a.port.addr("127.0.0.1")}})
			if err := b.SetCluster(clusterA); err != nil {
				t.Fatal(err)
			}
			until(t, "both know each other", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
		})
	}
}
