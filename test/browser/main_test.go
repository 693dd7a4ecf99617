package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/warrenmq/warren/test/cluster"
)

// rig is what all tests share: three nodes and a browser.
type rig struct {
	cluster *cluster.Cluster
	browser context.Context
	close   []func()
}

var start = sync.OnceValues(newRig)

// pictures is where screenshots go.
const pictures = "../../.run/page"

func TestMain(m *testing.M) {
	code := m.Run()
	if r, err := start(); err == nil {
		for i := range r.close {
			r.close[len(r.close)-1-i]()
		}
	}
	os.Exit(code)
}

func newRig() (*rig, error) {
	r := &rig{}
	dir, err := os.MkdirTemp("", "warren-page-")
	if err != nil {
		return nil, err
	}
	r.close = append(r.close, func() { _ = os.RemoveAll(dir) })
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return nil, err
	}
	binary, err := cluster.Build(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if r.cluster, err = cluster.Start(ctx, cluster.Config{Nodes: 3, Binary: binary, Dir: filepath.Join(dir, "nodes")}); err != nil {
		return nil, err
	}
	r.close = append(r.close, func() { _ = r.cluster.Close() })
	chromium, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		return nil, fmt.Errorf("test/clients/install.sh installs the browser: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(filepath.Join(dir, "browser")), chromedp.WSURLReadTimeout(time.Minute))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	r.close = append(r.close, stop)
	browser, stopBrowser := chromedp.NewContext(all)
	r.close = append(r.close, stopBrowser)
	if err := chromedp.Do(browser); err != nil {
		return nil, fmt.Errorf("start the browser: %w", err)
	}
	r.browser = browser
	return r, nil
}
