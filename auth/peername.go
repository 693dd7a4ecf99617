package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"strings"
)

// PeerName says which part of a verified certificate names the user, in the words of
// RabbitMQ's ssl_cert_login_from and ssl_cert_login_san_type.
type PeerName struct {
	From string // PeerCommonName, PeerDistinguishedName or PeerAlternativeName
	SAN  string // of PeerAlternativeName: SANDNS, SANEmail or SANURI; the first of them counts
}

// The values of PeerName.
const (
	PeerCommonName        = "common_name"
	PeerDistinguishedName = "distinguished_name" // as in RFC 4514
	PeerAlternativeName   = "subject_alternative_name"

	SANDNS   = "dns"
	SANEmail = "email"
	SANURI   = "uri"
)

// Of returns the user that a certificate names, "" if it names none.
func (p PeerName) Of(c *x509.Certificate) string {
	switch p.From {
	case PeerCommonName:
		return commonName(c.RawSubject)
	case PeerAlternativeName:
		return p.alternative(c)
	}
	return DistinguishedName(c.RawSubject)
}

func (p PeerName) alternative(c *x509.Certificate) string {
	switch {
	case p.SAN == SANEmail && len(c.EmailAddresses) > 0:
		return c.EmailAddresses[0]
	case p.SAN == SANURI && len(c.URIs) > 0:
		return c.URIs[0].String()
	case p.SAN == SANDNS && len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return ""
}

var oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// commonName joins several by commas, as RabbitMQ does.
func commonName(subject []byte) string {
	var names []string
	for _, set := range sequence(subject) {
		for _, a := range set {
			if a.Type.Equal(oidCommonName) {
				names = append(names, fmt.Sprint(a.Value))
			}
		}
	}
	return strings.Join(names, ",")
}

func sequence(name []byte) pkix.RDNSequence {
	var s pkix.RDNSequence
	if rest, err := asn1.Unmarshal(name, &s); err != nil || len(rest) > 0 {
		return nil // x509 has parsed it before
	}
	return s
}

// attributeNames are those RabbitMQ's rabbit_cert_info knows; others are shown by number.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "SERIALNUMBER", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
	"2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "TITLE", "2.5.4.42": "GIVENNAME", "2.5.4.43": "INITIALS",
	"2.5.4.44": "GENERATIONQUALIFIER", "2.5.4.65": "PSEUDONYM",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID", "1.2.840.113549.1.9.1": "EMAILADDRESS",
}

// DistinguishedName writes a certificate's subject or issuer, as it is encoded there, as text: the
// last part first, in its own order, which [pkix.Name] does not keep.
func DistinguishedName(raw []byte) string {
	var parts []string
	for _, set := range slices.Backward(sequence(raw)) {
		var values []string
		for _, a := range set {
			name := a.Type.String()
			if known, ok := attributeNames[name]; ok {
				name = known
			}
			values = append(values, name+"="+escapeValue(fmt.Sprint(a.Value)))
		}
		parts = append(parts, strings.Join(values, "+"))
	}
	return strings.Join(parts, ",")
}

// escapeValue does what RFC 4514, section 2.4 says.
func escapeValue(s string) string {
	var b strings.Builder
	for i, r := range s {
		first, last := i == 0, i == len(s)-1
		if strings.ContainsRune(`,+"\<>;`, r) || first && (r == ' ' || r == '#') || last && r == ' ' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
