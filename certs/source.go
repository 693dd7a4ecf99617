package certs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files are paths of PEM files.
type Files struct {
	// Cert is the certificate, followed by those of intermediate authorities. Key is its
	// private key.
	Cert, Key string
	// CA are the authorities whose certificates are trusted, any number in one file; "" for none.
	CA string
}

// Options says how files are used.
type Options struct {
	// Use names the source in logs, as in "clients".
	Use string
	// Name is a DNS name that the certificates of both ends must carry; "" if names do not count.
	Name string
	// Every is the time between two looks at the files; 10 s if 0.
	Every time.Duration
	// Log may be nil.
	Log *slog.Logger
	// Now is the clock that certificates are judged by; time.Now if nil.
	Now func() time.Time
}

const (
	everyDefault = 10 * time.Second
	// lookAgain is how long after a look that found something wrong the next one is, before it is said: a certificate is written before its key.
	lookAgain    = time.Second
	fileBytesMax = 1 << 20
)

// Change tells what a reload replaced.
type Change struct {
	Certificate bool // the certificate or its key
	Authorities bool
}

// Stats are a source's figures, for metrics.
type Stats struct {
	NotAfter time.Time // end of the certificate in use
	// Authorities is when the next of the authorities expires, or did if all have; zero without a CA file. Certificates that it has issued are worthless
	// then, whatever their own dates.
	Authorities time.Time
	Reloads     uint64 // contents taken after the first
	Failures    uint64 // contents that were refused, or files that could not be read, each counted once until something changes
}

// Source is the current content of three files. Its methods may be called from any goroutine.
type Source struct {
	files Files
	opt   Options

	state    atomic.Pointer[state]
	reloads  atomic.Uint64
	failures atomic.Uint64

	mu        sync.Mutex // one reload at a time; guards what follows
	refused   string     // what was last counted as a failure, "" for nothing
	listeners []func(Change)

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// state is one accepted content.
type state struct {
	sum         [3][sha256.Size]byte // of certificate, key and authorities
	certificate tls.Certificate
	authorities *x509.CertPool // nil without a CA file
	ends        []time.Time    // of the authorities
}

// Open reads the files and starts to watch them. It fails if a file cannot be read or is no PEM, if the
// key does not fit, and, where names count, if the other end would refuse the certificate for
// anything but its dates: one that has expired is used, because the files may be replaced at any time.
func Open(files Files, opt Options) (*Source, error) {
	if opt.Every <= 0 {
		opt.Every = everyDefault
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	opt.Log = opt.Log.With("use", opt.Use)
	s := &Source{files: files, opt: opt}
	st, err := s.read()
	if err != nil {
		return nil, err
	}
	leaf := st.certificate.Leaf
	if err := s.check(st, within(leaf, opt.Now())); err != nil {
		return nil, err
	}
	if err := dates(leaf, opt.Now()); err != nil {
		s.failures.Add(1)
		opt.Log.Error("the certificate cannot be used now and others will refuse it", "file", files.Cert, "err", err)
	}
	s.state.Store(st)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.work.Go(func() { s.watch(ctx) })
	return s, nil
}

// Close stops watching. Configurations that were handed out go on with what was last in use. It waits for a look that is under way, also if the files' system
// hangs, which nothing can end: a bound is for whoever closes all parts of the program. It is safe twice.
func (s *Source) Close() error {
	s.cancel()
	s.work.Wait()
	return nil
}

func (s *Source) watch(ctx context.Context) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.reload() == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(lookAgain, s.opt.Every)):
				s.Reload()
			}
		}
	}
}

// OnChange adds a listener for content that has come into use. It runs on the goroutine that
// reloads and must be quick.
func (s *Source) OnChange(f func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

// Stats returns the figures.
func (s *Source) Stats() Stats {
	st := s.state.Load()
	return Stats{
		NotAfter: st.certificate.Leaf.NotAfter, Authorities: nextEnd(st.ends, s.opt.Now()), Reloads: s.reloads.Load(), Failures: s.failures.Load(),
	}
}

// Reload looks at the files now, and says what is wrong with them.
func (s *Source) Reload() {
	err := s.reload()
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != err.Error() {
		s.refused = err.Error()
		s.failures.Add(1)
		s.opt.Log.Error("new certificates are not used, the old ones stay", "err", err)
	}
}

// reload takes what is in the files, unless it is wrong.
func (s *Source) reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state.Load()
	st, err := s.read()
	if err != nil {
		return err
	}
	if st.sum == old.sum {
		s.refused = ""
		return nil
	}
	now := s.opt.Now()
	if err := dates(st.certificate.Leaf, now); err != nil {
		return err
	}
	if err := s.check(st, now); err != nil {
		return err
	}
	s.refused = ""
	s.state.Store(st)
	s.reloads.Add(1)
	c := Change{Certificate: st.sum[0] != old.sum[0] || st.sum[1] != old.sum[1], Authorities: st.sum[2] != old.sum[2]}
	s.opt.Log.Info("certificates are replaced", "certificate", c.Certificate, "authorities", c.Authorities, "not-after", st.certificate.Leaf.NotAfter)
	for _, f := range s.listeners {
		f(c)
	}
	return nil
}

// read reads the files into a state that has not been checked.
func (s *Source) read() (*state, error) {
	st := new(state)
	var content [3][]byte
	for i, path := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if path == "" {
			continue
		}
		var err error
		if content[i], err = readFile(path); err != nil {
			return nil, err
		}
		if err := whole(content[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		st.sum[i] = sha256.Sum256(content[i])
	}
	var err error
	if st.certificate, err = tls.X509KeyPair(content[0], content[1]); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
	}
	if s.files.CA == "" {
		return st, nil
	}
	if st.authorities, st.ends, err = pool(content[2]); err != nil {
		return nil, fmt.Errorf("certificate authorities %s: %w", s.files.CA, err)
	}
	return st, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(b) > fileBytesMax {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, fileBytesMax)
	}
	return b, nil
}

// whole refuses content of which a part is no PEM, as when a file is being written: what comes before it would be taken for all, a chain without its
// intermediate authorities, or half a bundle.
func whole(content []byte) error {
	const begin = "-----BEGIN "
	begun := bytes.Count(content, []byte("\n"+begin))
	if bytes.HasPrefix(content, []byte(begin)) {
		begun++
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		begun--
	}
	if begun > 0 {
		return errors.New("a part of it is incomplete or malformed")
	}
	return nil
}

// pool reads a bundle, and when each certificate in it ends. Unlike x509's own function it takes nothing that does not parse: half a bundle
// would refuse half of the peers.
func pool(bundle []byte) (p *x509.CertPool, ends []time.Time, err error) {
	p = x509.NewCertPool()
	for rest := bytes.TrimSpace(bundle); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		p.AddCert(c)
		ends = append(ends, c.NotAfter)
	}
	if ends == nil {
		return nil, nil, errors.New("no certificate in it")
	}
	return p, ends, nil
}

// nextEnd returns the first of the times that is to come, or the last one if none is; zero if there are none.
func nextEnd(ends []time.Time, now time.Time) (at time.Time) {
	for _, end := range ends {
		switch coming := end.After(now); {
		case at.IsZero(), coming && !at.After(now), coming && end.Before(at), !coming && end.After(at):
			at = end
		}
	}
	return at
}

// dates tells whether a certificate is valid at a time.
func dates(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate has expired at %s", c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// within returns now, or the nearest time at which c is valid.
func within(c *x509.Certificate, now time.Time) time.Time {
	switch {
	case now.Before(c.NotBefore):
		return c.NotBefore
	case now.After(c.NotAfter):
		return c.NotAfter
	}
	return now
}

// check does to a state's own certificate what the other end will do, where both ends must carry a name.
func (s *Source) check(st *state, now time.Time) error {
	if s.opt.Name == "" {
		return nil
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := s.verify(st.authorities, chainOf(&st.certificate), usage, now); err != nil {
			return fmt.Errorf("certificate %s: %w", s.files.Cert, err)
		}
	}
	return nil
}

func chainOf(c *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{c.Leaf}
	for _, der := range c.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, parsed)
		}
	}
	return chain
}

// verify checks a chain of the other end, or of this one as the other end would.
func (s *Source) verify(authorities *x509.CertPool, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	if authorities == nil || len(chain) == 0 {
		return errors.New("no certificate, or no authority to check it by")
	}
	opt := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now}
	for _, c := range chain[1:] {
		opt.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opt); err != nil {
		return err
	}
	if s.opt.Name == "" {
		return nil
	}
	return chain[0].VerifyHostname(s.opt.Name)
}
