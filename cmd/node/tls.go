package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/certs"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/metrics"
)

// openCertificates reads the certificates that are set and looks at their files again from
// time to time and on SIGHUP.
func (n *running) openCertificates(context.Context) (err error) {
	if n.cfg.TLSCertFile != "" {
		n.clientTLS, err = certs.Open(
			certs.Files{Cert: n.cfg.TLSCertFile, Key: n.cfg.TLSKeyFile, CA: n.cfg.TLSCAFile},
			certs.Options{Use: "clients", Log: n.log})
		if err != nil {
			return fmt.Errorf("for clients: %w", err)
		}
		n.onClose("certificates for clients", n.clientTLS.Close)
	}
	n.reloadOnHangup()
	return nil
}

// reloadOnHangup looks at watched files on SIGHUP, which else would end the process.
func (n *running) reloadOnHangup() {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-hangup:
				n.log.Info("looking at watched files")
				n.reload()
			case <-stop:
				return
			}
		}
	}()
	n.onClose("hangup signal", func() error {
		signal.Stop(hangup)
		close(stop)
		<-stopped
		return nil
	})
}

// reload looks at all watched files now.
func (n *running) reload() {
	if n.clientTLS != nil {
		n.clientTLS.Reload()
	}
}

// clientAuth is what clients' certificates are for.
func (n *running) clientAuth() tls.ClientAuthType {
	switch n.cfg.TLSClientAuth {
	case config.ClientAuthVerify:
		return tls.VerifyClientCertIfGiven
	case config.ClientAuthRequire:
		return tls.RequireAndVerifyClientCert
	}
	return tls.NoClientCert
}

// peerName is the part of clients' certificates that names users.
func (n *running) peerName() auth.PeerName {
	return auth.PeerName{From: n.cfg.TLSLoginFrom, SAN: n.cfg.TLSLoginSANType}
}

// certificates are those in use, for metrics.
func (n *running) certificates() (list []metrics.Certificate) {
	for _, c := range []struct {
		use    string
		source *certs.Source
	}{{"clients", n.clientTLS}} {
		if c.source != nil {
			s := c.source.Stats()
			list = append(list, metrics.Certificate{Use: c.use, NotAfter: s.NotAfter, Reloads: s.Reloads, Failures: s.Failures})
		}
	}
	return list
}
