package management

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestFilterCost refuses expressions that become large programs, without making them, in every request that takes one.
func TestFilterCost(t *testing.T) {
	costly := strings.Repeat("(a*a%3F){999}", 70) // as in an address
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	status, body := askPage(t, "use_regex=true&name="+costly, pageItems())
	runtime.ReadMemStats(&after)
	if status != http.StatusBadRequest || !strings.Contains(body, "it repeats too much") {
		t.Errorf("a costly filter: %d %s", status, body)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("a filter that is refused takes %d bytes", took)
	}
	costly = strings.ReplaceAll(costly, "%3F", "?")
	r := httptest.NewRequest(http.MethodGet, "/x", http.NoBody)
	r.SetPathValue("pattern", costly)
	if _, err := (&API{}).checkLeaders(r); err == nil {
		t.Error("a costly pattern of a health check is taken")
	}
	if _, err := matchOf(map[string]any{"queue_pattern": costly}); err == nil {
		t.Error("a costly queue_pattern is taken")
	}
	// As long as a filter may be, it fits.
	if status, body := askPage(t, "use_regex=true&name="+strings.Repeat("ab|", 341), pageItems()); status != http.StatusOK {
		t.Errorf("a long filter: %d %s", status, body)
	}
}

// TestFilterEndsWithItsClient stops matching names for a client that has gone.
func TestFilterEndsWithItsClient(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	q, err := readListQuery(httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/x?use_regex=true&name=a", http.NoBody))
	if err != nil || !q.match("a") {
		t.Fatalf("a does not match: %v", err)
	}
	if gone(); q.match("a") {
		t.Error("a name is still matched")
	}
}

// TestColumnsCost: what many columns cost does not grow with their number for each field of each item.
func TestColumnsCost(t *testing.T) {
	var names []string
	for i := range 200_000 {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	items := make([]pageItem, 4000)
	begun := time.Now()
	status, body := askPage(t, "columns=n,"+strings.Join(names, ","), items)
	if status != http.StatusOK || body[:16] != `[{"n":0},{"n":0}` {
		t.Errorf("%d %.50s", status, body)
	}
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("%d columns of %d items took %v", len(names), len(items), took)
	}
}
