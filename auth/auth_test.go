package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

func replyText(err error) string {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return e.ReplyText()
	}
	return fmt.Sprint(err)
}

func TestPasswords(t *testing.T) {
	a, b := HashPassword("secret"), HashPassword("secret")
	if a == b {
		t.Error("two hashes of one password are equal: no salt")
	}
	if !a.Matches("secret") || a.Matches("Secret") || a.Matches("") || a.Matches("secret ") {
		t.Error("wrong match")
	}
	// Made apart from this code: salt 908dc60a and the SHA-256 of it with the password.
	if known := PasswordHash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"); !known.Matches("test12") || known.Matches("test13") {
		t.Error("a hash from another broker does not match")
	}
	for hash, algorithm := range map[PasswordHash]string{
		"c2FsdEmMWqvrOVzhEyF49Rc2SAE=": "rabbit_password_hashing_md5",
		"c2FsdGTWYXpkqJ39BTnflbid+o7EoFspAVNi3YIsFBfjbskzUNmEK+16L9L13KOU2Kt6XZcRHLbEIeIn86xwTEX4ZPg=": "rabbit_password_hashing_sha512",
	} {
		password := "pass of " + algorithm[len("rabbit_password_hashing_"):]
		if !hash.Matches(password) || hash.Matches("x") || hash.Matches("") || hash.Validate() != nil || hash.Algorithm() != algorithm {
			t.Errorf("%s: does not match, or is %s", algorithm, hash.Algorithm())
		}
	}
	if a.Algorithm() != HashingAlgorithm || PasswordHash("").Algorithm() != HashingAlgorithm {
		t.Error("passwords are hashed otherwise than said")
	}
	if empty := HashPassword(""); empty != "" || empty.Matches("") {
		t.Error("an empty password must never match")
	}
	for _, bad := range []PasswordHash{"!", "YWJj", a + PasswordHash(strings.Repeat("\n", 70_000))} {
		if bad.Validate() == nil || bad.Matches("x") {
			t.Errorf("hash %.99q was accepted", string(bad))
		}
	}
	if s := fmt.Sprintf("%v %s", a, Credentials{User: "u", Password: "p"}.Password); strings.Contains(s, "p") || strings.Contains(s, string(a)) {
		t.Errorf("a secret shows in %q", s)
	}
}

func TestLogin(t *testing.T) {
	guest := &User{Name: "guest", PasswordHash: HashPassword("guest")}
	other := &User{Name: "other", PasswordHash: HashPassword("pw")}
	for name, c := range map[string]struct {
		user     *User
		password string
		loopback bool
		ok       bool
	}{
		"guest at home":         {guest, "guest", true, true},
		"guest from outside":    {guest, "guest", false, false},
		"guest, wrong password": {guest, "x", true, false},
		"other from outside":    {other, "pw", false, true},
		"nobody":                {nil, "pw", true, false},
	} {
		err := c.user.Login(c.password, c.loopback)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrLogin) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPermissions(t *testing.T) {
	p, err := NewPermission("u", "/", "^conf", "", "read|amq\\.default")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    *Permission
		a    Action
		k    Kind
		name string
		want string
	}{
		{p, Configure, Queue, "config", ""},
		{p, Configure, Queue, "my-conf", "ACCESS_REFUSED - configure access to queue 'my-conf' in vhost '/' refused for user 'u'"},
		{p, Write, Exchange, "x", "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'"},
		{p, Write, Exchange, "", "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'"},
		{p, Read, Queue, "unreadable", ""}, // the search is not anchored
		{p, Read, Exchange, "", ""},
		{nil, Read, Queue, "q", "ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'u'"},
	} {
		got := ""
		if !c.p.Allows(c.a, c.k, c.name) {
			got = replyText(Refuse(c.a, c.k, c.name, "/", "u"))
		}
		if got != c.want {
			t.Errorf("%v %s %q: %q, want %q", c.a, c.k, c.name, got, c.want)
		}
	}
	if got := replyText(RefuseVhost("v", "u")); got != "NOT_ALLOWED - access to vhost 'v' refused for user 'u'" {
		t.Errorf("vhost refusal: %q", got)
	}
	if _, err := NewPermission("u", "/", "(", "", ""); err == nil {
		t.Error("a bad pattern was accepted")
	}
	if _, err := NewPermission("u", "/", strings.Repeat("a", PatternBytesMax+1), "", ""); err == nil {
		t.Error("a huge pattern was accepted")
	}
}

func amqplain(fields amqp.Table) []byte { return amqp.AppendTable(nil, fields)[4:] }

func TestMechanisms(t *testing.T) {
	for name, c := range map[string]struct {
		mechanism string
		response  []byte
		want      Credentials
		ok        bool
	}{
		"plain":                 {"PLAIN", []byte("\x00user\x00pass"), Credentials{"user", "pass"}, true},
		"plain, own authzid":    {"PLAIN", []byte("user\x00user\x00pass"), Credentials{"user", "pass"}, true},
		"plain, other authzid":  {"PLAIN", []byte("root\x00user\x00pass"), Credentials{}, false},
		"plain, empty":          {"PLAIN", nil, Credentials{}, false},
		"plain, one separator":  {"PLAIN", []byte("user\x00pass"), Credentials{}, false},
		"plain, three":          {"PLAIN", []byte("\x00u\x00p\x00x"), Credentials{}, false},
		"plain, empty password": {"PLAIN", []byte("\x00u\x00"), Credentials{"u", ""}, true},
		"amqplain":              {"AMQPLAIN", amqplain(amqp.Table{{Name: "LOGIN", Value: "user"}, {Name: "PASSWORD", Value: "pass"}}), Credentials{"user", "pass"}, true},
		"amqplain, no password": {"AMQPLAIN", amqplain(amqp.Table{{Name: "LOGIN", Value: "user"}}), Credentials{}, false},
		"amqplain, a number":    {"AMQPLAIN", amqplain(amqp.Table{{Name: "LOGIN", Value: int32(1)}, {Name: "PASSWORD", Value: "p"}}), Credentials{}, false},
		"amqplain, garbage":     {"AMQPLAIN", []byte{5, 'x'}, Credentials{}, false},
		"too long":              {"PLAIN", make([]byte, ResponseBytesMax+1), Credentials{}, false},
		"unknown":               {"EXTERNAL", nil, Credentials{}, false},
	} {
		got, err := ParseResponse(c.mechanism, c.response)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	_, err := ParseResponse("X", nil)
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != 503 {
		t.Errorf("unknown mechanism: %v", err)
	}
}

func TestExternal(t *testing.T) {
	for _, c := range []struct{ response, peer, want string }{
		{"", "CN=u", "CN=u"}, {"CN=u", "CN=u", "CN=u"}, {"root", "CN=u", "CN=u"}, {"\x00*\x00*", "CN=u", "CN=u"}, {"", "", ""}, {"u", "", ""},
	} {
		got, err := ParseExternal([]byte(c.response), c.peer)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, ErrLogin) {
			t.Errorf("%q as %q: %q, %v", c.response, c.peer, got, err)
		}
	}
	all := []string{MechanismPlain, MechanismExternal}
	if got := Offered(all, false); !slices.Equal(got, all[:1]) {
		t.Errorf("offered without a certificate: %v", got)
	}
	if got := Offered(all, true); !slices.Equal(got, all) {
		t.Errorf("offered with one: %v", got)
	}
	guest := &User{Name: GuestName}
	if guest.LoginVerified(false) == nil || guest.LoginVerified(true) != nil || (*User)(nil).LoginVerified(true) == nil {
		t.Error("wrong verdict on a verified user")
	}
}

func TestTags(t *testing.T) {
	if got := ParseTags("administrator, monitoring,,"); !slices.Equal(got, []string{"administrator", "monitoring"}) {
		t.Errorf("tags %q", got)
	}
	u := &User{Name: "u", Tags: []string{TagMonitoring}}
	if !u.HasTag(TagMonitoring) || u.HasTag(TagAdministrator) {
		t.Error("wrong tags")
	}
	for _, bad := range []User{{}, {Name: strings.Repeat("x", 256)}, {Name: "u", PasswordHash: "x"}} {
		if bad.Validate() == nil {
			t.Errorf("user %+v was accepted", bad)
		}
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add("PLAIN", []byte("\x00user\x00pass"))
	f.Add("AMQPLAIN", amqplain(amqp.Table{{Name: "LOGIN", Value: "user"}, {Name: "PASSWORD", Value: "pass"}}))
	f.Fuzz(func(t *testing.T, mechanism string, response []byte) {
		c, err := ParseResponse(mechanism, response)
		if err != nil && c != (Credentials{}) {
			t.Fatal("credentials with an error")
		}
		if err == nil && strings.Contains(c.User, "\x00") && mechanism == MechanismPlain {
			t.Fatal("separator in the user")
		}
	})
}
