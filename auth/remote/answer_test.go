package remote

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestAnswers: what RabbitMQ 4.3.6 made of these texts, except where said.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		body   string
		user   string // what it says about a user: allow and the tags, deny, or "" for no answer
		others string
	}{
		{"allow", "allow", "allow"},
		{"Allow", "allow", "allow"},
		{"  allow ", "allow", "allow"},
		{"allow administrator", "allow administrator", ""},
		{" ALLOW  Administrator, x", "allow administrator, x", ""},
		{"allow two  spaces", "allow two spaces", ""},
		{"deny", "deny", "deny"},
		{"DENY", "deny", "deny"},
		{" deny x", "deny", "deny"},
		{"deny because", "deny", "deny"},
		{"denied", "", ""},
		{"denying", "deny", "deny"},
		{"", "", ""},
		{"nonsense", "", ""},
		{"al low", "", ""},
		{`"allow"`, "", ""},
		{`{"result":"allow"}`, "", ""},
		// A line's end is a tag to RabbitMQ, and makes all answers but those about users useless.
		{"allow\n", "allow", "allow"},
		{"allow management\r\n", "allow management", ""},
		// RabbitMQ lets in with the tag that is left.
		{"allowed", "", ""},
		{"allowx y", "", ""},
		{"allow\tadministrator", "", ""},
		{strings.Repeat(" ", answerBytesMax) + "allow", "", ""},
	} {
		for tagged, want := range map[bool]string{true: c.user, false: c.others} {
			a, err := parseAnswer(c.body, tagged)
			got := "deny"
			if a.allowed {
				got = strings.Join(append([]string{"allow"}, a.tags...), " ")
			}
			if err != nil {
				got = ""
			}
			if got != want || err != nil && (!errors.Is(err, errUnusable) || a.allowed) {
				t.Errorf("%.40q, about a user: %v: got %q, want %q, error %v", c.body, tagged, got, want, err)
			}
		}
	}
}

// FuzzAnswer: nothing but the word lets anybody in, and tags are texts without spaces, in lower case.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"allow", " Allow a b", "deny", "denied", "allowed", "allow\x00x", "\u00a0allow", "ALLOW \u0130"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, body string, tagged bool) {
		a, err := parseAnswer(body, tagged)
		switch {
		case err != nil && a.allowed, len(a.tags) > 0 && (!a.allowed || !tagged):
			t.Errorf("%q: %+v, %v", body, a, err)
		case a.allowed && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(body)), "allow"):
			t.Errorf("%q is allowed", body)
		case slices.ContainsFunc(a.tags, func(tag string) bool { return tag == "" || strings.Contains(tag, " ") || tag != strings.ToLower(tag) }):
			t.Errorf("%q has tags %q", body, a.tags)
		}
	})
}
