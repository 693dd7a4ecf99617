package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// ServerConfig returns the configuration of a listener for its whole life. Clients' certificates are
// treated as auth says, by the authorities of the moment; where names count each must carry the name.
// protocols are those for ALPN, none if there are none.
//
// Between nodes (Options.Name is set) only TLS 1.3 is spoken, to clients 1.2 as well.
func (s *Source) ServerConfig(auth tls.ClientAuthType, protocols ...string) *tls.Config {
	base := &tls.Config{MinVersion: s.minVersion(), NextProtos: protocols, SessionTicketsDisabled: true, ClientAuth: auth}
	if s.opt.Name != "" {
		base.VerifyConnection = func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return errors.New("the peer has no certificate")
			}
			return c.PeerCertificates[0].VerifyHostname(s.opt.Name)
		}
	}
	base.Time = s.opt.Now
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		st := s.state.Load()
		c := base.Clone()
		c.Certificates = []tls.Certificate{st.certificate}
		c.ClientCAs = st.authorities
		if c.ClientCAs == nil {
			c.ClientCAs = x509.NewCertPool() // nil would be the system's
		}
		return c, nil
	}
	// Some users look for a certificate before they start.
	outer.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.state.Load().certificate, nil }
	return outer
}

// ClientConfig returns the configuration of a dialler for its whole life. The server's certificate must come from
// an authority of the moment and carry the name, whatever its address is. Options.Name must be set.
func (s *Source) ClientConfig(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: s.minVersion(), NextProtos: protocols, ServerName: s.opt.Name, Time: s.opt.Now,
		// The check of crypto/tls is by authorities that cannot be exchanged: VerifyConnection does all of it.
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			return s.verify(s.state.Load().authorities, c.PeerCertificates, x509.ExtKeyUsageServerAuth, s.opt.Now())
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.state.Load().certificate, nil
		},
	}
}

func (s *Source) minVersion() uint16 {
	if s.opt.Name != "" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}
