package catalog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// A node hears nothing after it has proposed a command, while more commands are committed than the replicas remember. When it is back, its
// command is not applied a second time, which would undo what came behind it.
func TestRetryAfterItWasForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of commands")
	}
	c := newNodes(t, 3)
	c.ready()
	leader, away := c.leader(), c.follower()
	put := func(hash auth.PasswordHash) *catalog.PutUser {
		return &catalog.PutUser{User: auth.User{Name: "alice", PasswordHash: hash}}
	}
	first, second := auth.HashPassword("first"), auth.HashPassword("second")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	away.gate.deafen()
	done := make(chan error, 1)
	go func() {
		_, err := away.catalog.Propose(ctx, put(first))
		done <- err
	}()
	until(t, "the command is committed", func() bool { return leader.catalog.View().User("alice") != nil })
	away.gate.shut()
	propose(t, leader, put(second))
	var others sync.WaitGroup
	for i := range 100 {
		others.Go(func() {
			for j := range 85 {
				_, err := leader.catalog.Propose(ctx, &catalog.PutVhost{Vhost: catalog.Vhost{Name: fmt.Sprint(i), Description: fmt.Sprint(j)}})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	others.Wait()
	away.gate.release()
	err := <-done
	t.Log("the proposal ended with", err)
	time.Sleep(time.Second)
	propose(t, leader, register(leader))
	if u := leader.catalog.View().User("alice"); u.PasswordHash != second {
		t.Error("the command was applied again")
	}
}
