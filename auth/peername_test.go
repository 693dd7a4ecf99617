package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net/url"
	"testing"

	"github.com/warrenmq/warren/test/pki"
)

func TestPeerName(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Leaf{
		Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{2, 5, 4, 6}, Value: "SE"},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "first"},
			{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: "a@example.org"},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "#Rabbits, \"Hares\" + Co "},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 99}, Value: "odd"},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "é"},
		}},
		DNS: []string{"one.example.org", "two.example.org"}, Emails: []string{"mail@example.org"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "td", Path: "/app"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := ca.Issue(pki.Leaf{})
	if err != nil {
		t.Fatal(err)
	}
	parse := func(p pki.Pair) *x509.Certificate {
		block, _ := pem.Decode(p.Cert)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tc := range []struct {
		name PeerName
		want string
	}{
		{PeerName{From: PeerCommonName}, "first,é"},
		{PeerName{From: PeerDistinguishedName}, `CN=é,2.5.4.99=odd,O=\#Rabbits\, \"Hares\" \+ Co\ ,EMAILADDRESS=a@example.org,CN=first,C=SE`},
		{PeerName{From: PeerAlternativeName, SAN: SANDNS}, "one.example.org"},
		{PeerName{From: PeerAlternativeName, SAN: SANEmail}, "mail@example.org"},
		{PeerName{From: PeerAlternativeName, SAN: SANURI}, "spiffe://td/app"},
	} {
		if got := tc.name.Of(parse(pair)); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.name, got, tc.want)
		}
		if got := tc.name.Of(parse(bare)); got != "" {
			t.Errorf("%+v of a certificate without names: %q", tc.name, got)
		}
	}
}
