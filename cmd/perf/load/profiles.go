package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// profileTime is what the profiles of a phase cover, from its beginning.
const profileTime = 2 * time.Second

// profiles are the kinds that are taken of each node, by the names of /debug/pprof.
var profiles = []string{"profile", "allocs", "block", "mutex"}

// profiled does a phase of a measurement, with profiles of the nodes that clients use if they are wanted.
func (r *run) profiled(phase string, do func() error) error {
	if r.load.cfg.profiles == "" || r.servers.cluster == nil {
		return do()
	}
	wait := r.servers.profile(r.ctx, filepath.Join(r.load.cfg.profiles, phase))
	if err := do(); err != nil {
		return err
	}
	if err := wait(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// profile writes profiles of the nodes that clients use into files that begin with path. It returns a
// function that waits for them.
func (s *servers) profile(ctx context.Context, path string) (wait func() error) {
	var g errgroup.Group
	for _, n := range s.cluster.Nodes() {
		if !slices.Contains(s.cfg.URLs, n.URL()) {
			continue
		}
		for _, kind := range profiles {
			g.Go(func() error {
				data, err := fetch(ctx, fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", n.HTTP(), kind, int(profileTime.Seconds())))
				if err != nil {
					return err
				}
				return os.WriteFile(fmt.Sprintf("%s-%s-%s.pprof", path, n.Name, kind), data, 0o600)
			})
		}
	}
	return g.Wait
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return data, err
}
