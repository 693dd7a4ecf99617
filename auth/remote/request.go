package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/warrenmq/warren/auth"
)

// ask sends one request when it is its turn. The error wraps [auth.ErrAway] if there is no answer and errUnusable if it is none, or is that of still: then
// skipped tells that nobody was asked.
func (s *Server) ask(ctx context.Context, p Path, form, source string, still func() error) (a answer, skipped bool, err error) {
	if !s.gate.Enter(ctx, source) {
		return a, false, fmt.Errorf("%w: too many questions at a time", auth.ErrAway)
	}
	defer s.gate.Leave()
	if still != nil {
		if err := still(); err != nil {
			return a, true, err
		}
	}
	began := time.Now()
	a, err = s.send(ctx, p, form)
	s.counts.asked(p, a, err, time.Since(began))
	s.answered(err)
	return a, false, err
}

// send makes a request and reads its answer.
func (s *Server) send(ctx context.Context, p Path, form string) (answer, error) {
	req, err := s.request(ctx, p, form)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", auth.ErrAway, err)
	}
	resp, err := s.client.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which has the password in it
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", auth.ErrAway, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax+1))
	switch code := resp.StatusCode; {
	case code >= 500 || code == http.StatusTooManyRequests:
		return answer{}, fmt.Errorf("%w: status %d", auth.ErrAway, code)
	case err != nil:
		return answer{}, fmt.Errorf("%w: %w", auth.ErrAway, err)
	case code != http.StatusOK && code != http.StatusCreated:
		return answer{}, fmt.Errorf("%w: status %d", errUnusable, code)
	}
	return parseAnswer(string(body), p == User)
}

func (s *Server) request(ctx context.Context, p Path, form string) (req *http.Request, err error) {
	if s.cfg.Post {
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URLs[p], strings.NewReader(form))
	} else {
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URLs[p]+"?"+form, nil)
	}
	if err != nil {
		return nil, errors.New("no request can be made of the URL") // which has the password in it
	}
	if s.cfg.Post {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		// A question can be asked twice: it is, if the server has closed the connection meanwhile. The header itself is not sent.
		req.Header["Idempotency-Key"] = nil
	}
	return req, nil
}

// newClient makes the client: it keeps connections, uses no proxy, and goes nowhere else than to the URLs of the settings.
func (s *Server) newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conf, err := s.tlsConfig() // the files may have been replaced
				if err != nil {
					return nil, err
				}
				return (&tls.Dialer{Config: conf}).DialContext(ctx, network, address)
			},
			MaxConnsPerHost: s.cfg.Parallel, MaxIdleConnsPerHost: s.cfg.Parallel, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tlsConfig reads what a connection needs.
func (s *Server) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.CAFile != "" {
		text, err := os.ReadFile(s.cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates of the server of logins: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates of the server of logins: %s has none", s.cfg.CAFile)
		}
	}
	if s.cfg.CertFile != "" {
		own, err := tls.LoadX509KeyPair(s.cfg.CertFile, s.cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate for the server of logins: %w", err)
		}
		conf.Certificates = []tls.Certificate{own}
	}
	return conf, nil
}
