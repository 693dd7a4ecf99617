package tokens

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// pace is what asking the issuer for its keys costs at most.
type pace struct {
	every   time.Duration // keys are used so long without asking for new ones
	pause   time.Duration // the least time between two fetches
	timeout time.Duration // of one fetch
	wait    time.Duration // of a login for one
}

var usual = pace{every: 5 * time.Minute, pause: 10 * time.Second, timeout: 5 * time.Second, wait: 3 * time.Second}

// redirectsMax bounds how often the issuer may send a fetch elsewhere.
const redirectsMax = 3

// trusted tells whether nobody on the way can answer for a URL: who did could log in as anybody.
func trusted(u *url.URL) error {
	switch {
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s is no URL of https", u.Redacted())
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return fmt.Errorf("%s is no URL of https, and not of this machine", u.Redacted())
	}
	return nil
}

// keyURL is a source that fetches the keys again from time to time, and when a token names one that it does not have. One goroutine fetches, from openURL to close.
type keyURL struct {
	url, caFile string
	pace        pace
	log         *slog.Logger
	stop        context.CancelFunc
	ended       chan struct{} // closed when the goroutine has
	wanted      chan struct{} // of one element: somebody waits for a fetch

	mu   sync.Mutex
	set  *jose.JSONWebKeySet // nil until there are any
	err  error               // of the last fetch
	next *fetch              // the one that is under way or may begin next
}

// fetch is one that logins can wait for.
type fetch struct {
	due  time.Time     // it does not begin before
	done chan struct{} // closed at its end
}

func openURL(text, caFile string, p pace, log *slog.Logger) (*keyURL, error) {
	u, err := url.Parse(text)
	if err == nil {
		err = trusted(u)
	}
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	k := &keyURL{url: text, caFile: caFile, pace: p, log: log, ended: make(chan struct{}), wanted: make(chan struct{}, 1), next: &fetch{done: make(chan struct{})}}
	if _, err := k.client(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	go k.run(ctx)
	return k, nil
}

func (k *keyURL) close() error {
	k.stop()
	<-k.ended
	return nil
}

// run fetches until ctx ends.
func (k *keyURL) run(ctx context.Context) {
	defer close(k.ended)
	for {
		set, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := k.take(set, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(k.pace.pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wanted:
		case <-time.After(pause):
		}
	}
}

// take keeps what a fetch has found, and tells how long it takes until the next unless somebody wants one.
func (k *keyURL) take(set *jose.JSONWebKeySet, err error) (pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && k.err == nil:
		k.log.Warn("the keys of tokens cannot be fetched: those of before are used", "url", k.url, "keys", k.count(), "err", err)
	case err == nil && (k.err != nil || k.set == nil):
		k.log.Info("the keys of tokens are there", "url", k.url, "keys", len(set.Keys))
	}
	if k.err = err; err == nil {
		k.set, pause = set, k.pace.every-k.pace.pause
	}
	select {
	case <-k.wanted: // it was this one
	default:
	}
	close(k.next.done)
	k.next = &fetch{due: time.Now().Add(k.pace.pause), done: make(chan struct{})}
	return pause
}

func (k *keyURL) count() int {
	if k.set == nil {
		return 0
	}
	return len(k.set.Keys)
}

// keys implements source.
func (k *keyURL) keys(id string) (*jose.JSONWebKeySet, error) {
	k.mu.Lock()
	set, err, next := k.set, k.err, k.next
	k.mu.Unlock()
	if set != nil && (id == "" || len(set.Key(id)) > 0) {
		return set, err
	}
	select {
	case k.wanted <- struct{}{}:
	default: // somebody else wants it
	}
	if time.Until(next.due) > 0 {
		return set, err // the issuer was asked a moment ago, and has to be spared
	}
	late := time.NewTimer(k.pace.wait)
	defer late.Stop()
	select {
	case <-next.done:
	case <-late.C:
		err = errors.Join(err, fmt.Errorf("keys of tokens: %s has not answered in %v", k.url, k.pace.wait))
	case <-k.ended:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		err = k.err
	}
	return k.set, err
}

// fetch asks the issuer once.
func (k *keyURL) fetch(ctx context.Context) (*jose.JSONWebKeySet, error) {
	ctx, cancel := context.WithTimeout(ctx, k.pace.timeout)
	defer cancel()
	client, err := k.client()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys of tokens: %s answered %s", k.url, resp.Status)
	}
	return parse(resp.Body, k.url)
}

// client is for one fetch: the certificates of the authorities are read each time, so that they can be replaced.
func (k *keyURL) client() (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if k.caFile != "" {
		text, err := os.ReadFile(k.caFile)
		if err != nil {
			return nil, fmt.Errorf("keys of tokens: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("keys of tokens: %s has no certificate", k.caFile)
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > redirectsMax {
				return fmt.Errorf("more than %d redirections", redirectsMax)
			}
			return trusted(req.URL)
		},
	}, nil
}
