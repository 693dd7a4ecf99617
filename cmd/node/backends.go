package main

import (
	"github.com/warrenmq/warren/auth/remote"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/metrics"
)

// Bounds of what is asked about logins, see package remote.
const (
	questionsParallel = 32
	questionsWaiting  = 1024
)

// openRemote makes the client of the server that is asked about logins.
func (n *running) openRemote() (err error) {
	if !n.cfg.AsksHTTP() {
		return nil
	}
	cfg := remote.Config{
		Post: n.cfg.AuthHTTPMethod == config.AuthHTTPPost, CAFile: n.cfg.AuthHTTPCAFile, CertFile: n.cfg.AuthHTTPCertFile, KeyFile: n.cfg.AuthHTTPKeyFile,
		Timeout: n.cfg.AuthHTTPTimeout, TTL: n.cfg.AuthHTTPTTL, RefusalTTL: n.cfg.AuthHTTPRefusalTTL,
		Parallel: questionsParallel, Waiting: questionsWaiting, Log: n.log,
	}
	for i, u := range n.cfg.AuthURLs() { // in the order of the paths
		if cfg.URLs[i] = u.URL; u.ClearText() {
			n.log.Warn("what is asked about logins can be read on the way: the URL is not one of https", "setting", u.Setting, "url", u.URL)
		}
	}
	if n.remote, err = remote.New(cfg); err != nil {
		return err
	}
	n.onClose("server of logins", n.remote.Close)
	return nil
}

// backends are where logins are looked for.
func (n *running) backends() (list []broker.Backend) {
	for _, name := range n.cfg.AuthBackends {
		switch name {
		case config.AuthHTTP:
			list = append(list, broker.Backend{Outside: n.remote})
		case config.AuthHTTPInternal:
			list = append(list, broker.Backend{Outside: n.remote, ByCatalog: true})
		default:
			list = append(list, broker.Backend{})
		}
	}
	return list
}

// remoteFigures are nil if nobody is asked about logins.
func (n *running) remoteFigures() *metrics.Remote {
	if n.remote == nil {
		return nil
	}
	f := n.remote.Figures()
	m := &metrics.Remote{Away: f.Away, Busy: f.Busy}
	for _, c := range f.Counts {
		m.Questions = append(m.Questions, metrics.Question{
			Path: c.Path.String(), Allowed: c.Allowed, Denied: c.Denied, Unusable: c.Unusable, Failed: c.Failed, Remembered: c.Remembered, Old: c.Old, Took: c.Took,
		})
	}
	return m
}
