package process

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestOneOfManyMakesIt: of those who declare the same queue or exchange over HTTP at the same time, through different nodes, one is told to have made it (201).
func TestOneOfManyMakesIt(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for what, body := range map[string]string{"queues": `{"durable":true}`, "exchanges": `{"type":"fanout","durable":true}`} {
		for round := range 5 {
			url := fmt.Sprintf("/api/%s/%%2F/onemakes%d", what, round)
			var mu sync.Mutex
			answers := map[int]int{}
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					status, err := putTo(t.Context(), c.Node(i%3).HTTP()+url, body)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					answers[status]++
				})
			}
			wg.Wait()
			if answers[201] != 1 || answers[204] != 5 {
				t.Errorf("%s: answers by status %v", url, answers)
			}
			if status, raw := api(t, http.MethodDelete, c.Node(0).HTTP()+url); status != 204 {
				t.Errorf("delete: %d %s", status, raw)
			}
		}
	}
}

// putTo is a PUT by the user guest.
func putTo(ctx context.Context, url, body string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth("guest", "guest")
	client := http.Client{Timeout: timeoutReply, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
